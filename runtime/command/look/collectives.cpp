#include <shoal/internal/runtime/command/look/collectives.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/report/stuck_report.h>

#include <nlohmann/json.hpp>

namespace shoal::command {
namespace {

using Json = nlohmann::ordered_json;

Json to_object(const SessionView& view, const SeenCall& call) {
  const std::uint64_t end = call.end == 0 ? view.time : call.end;
  return {{"call", call.call},
          {"collective", call.name},
          {"bytes", call.bytes},
          {"type", call.type.empty() ? Json(nullptr) : Json(call.type)},
          {"state", call.end == 0 ? "going on"
                    : call.failed ? "failed"
                                  : "done"},
          {"start", double(call.start) * 1e-9},
          {"seconds", end > call.start ? double(end - call.start) * 1e-9 : 0}};
}

Json to_object(const SessionView& view, int number, const SeenRank& rank) {
  Json calls = Json::array();
  for (const SeenCall& call : rank.last) calls.push_back(to_object(view, call));
  return {{"rank", number},
          {"pid", rank.joined ? Json(rank.pid) : Json(nullptr)},
          {"state", !rank.joined ? "absent"
                    : rank.left  ? "left"
                    : rank.alive ? "alive"
                                 : "ended"},
          {"calls", rank.calls},
          {"last", std::move(calls)}};
}

}  // namespace

std::string collectives_text(const SessionFile& file, std::size_t rows) {
  const SessionView view = look_at(file);
  const std::vector<SeenGroup> groups = look_at_groups(file, view, rows);
  std::string text = fmt::format("session of process {}   {} group{} of ranks\n", view.root, groups.size(),
                                 groups.size() == 1 ? "" : "s");
  for (const SeenGroup& group : groups)
    text += fmt::format("\ngroup @{:x} of {} ranks: {}", group.block, group.ranks.size(),
                        report_group(file, view, group, rows));
  return text;
}

std::string collectives_json(const SessionFile& file, std::size_t rows) {
  const SessionView view = look_at(file);
  Json groups = Json::array();
  for (const SeenGroup& group : look_at_groups(file, view, rows)) {
    Json ranks = Json::array();
    for (int number = 0; number < int(group.ranks.size()); ++number)
      ranks.push_back(to_object(view, group.number_of(number), group.ranks[std::size_t(number)]));
    const auto stuck = find_stuck(group);
    Json missing = Json::array();
    if (stuck)
      for (const int rank : stuck->missing) missing.push_back(group.number_of(rank));
    groups.push_back({{"block", group.block},
                      {"waited_for", stuck ? to_object(view, stuck->call) : Json(nullptr)},
                      {"missing", std::move(missing)},
                      {"ranks", std::move(ranks)}});
  }
  const Json object = {
      {"schema", 1}, {"time", double(view.time) * 1e-9}, {"root", view.root}, {"groups", std::move(groups)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shoal::command
