#include <shoal/internal/runtime/report/stuck_report.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/text/quantity_text.h>
#include <shoal/internal/ipc/text/utf8_fit.h>

#include <algorithm>
#include <set>

namespace shoal {
namespace {

/// What other processes have written is made harmless.
std::string harmless(const std::string& text) { return fit_columns(text, 40); }

std::string seconds_text(std::uint64_t from, std::uint64_t to) {
  const double seconds = to > from ? double(to - from) * 1e-9 : 0;
  return seconds < 10 ? fmt::format("{:.0f}ms", seconds * 1e3) : fmt::format("{:.1f}s", seconds);
}

std::string call_text(const SeenCall& call) { return fmt::format("{} {}", harmless(call.name), call.call); }

std::string size_text(const SeenCall& call) {
  return fmt::format("{}{}{}", short_bytes(call.bytes), call.type.empty() ? "" : " ", harmless(call.type));
}

std::string rank_text(const SessionView& view, int number, const SeenRank& rank) {
  if (!rank.joined) return fmt::format("rank {}", number);
  const SeenProcess* process = rank.slot ? view.process(*rank.slot) : nullptr;
  const std::string name = process && !process->name.empty() ? harmless(process->name) + ", " : "";
  return fmt::format("rank {} ({}pid {})", number, name, rank.pid);
}

std::string place_of(const SeenRank& rank, const std::vector<ProcessStacks>& stacks, const NamedCalls& calls) {
  const auto process = std::ranges::find(stacks, rank.pid, &ProcessStacks::pid);
  if (process == stacks.end() || process->threads.empty()) return "";
  auto thread = std::ranges::find(process->threads, rank.thread, &ThreadStack::thread);
  if (thread == process->threads.end()) thread = process->threads.begin();  // it has called nothing yet
  return "; it is in " + place_in_program(rank.pid, *thread, calls);
}

/// Where a rank is, as its log says.
std::string state_text(const SessionView& view, const SeenRank& rank) {
  if (!rank.joined) return "has not joined the group";
  if (rank.left) return "has left the group";
  if (!rank.alive) return "has ended";
  if (const SeenCall* call = rank.current())
    return fmt::format("has been in {} for {}", call_text(*call), seconds_text(call->start, view.time));
  if (rank.last.empty()) return "has called nothing yet";
  const SeenCall& last = rank.last.back();
  return fmt::format("{} {} {} ago", last.failed ? "failed in" : "ended", call_text(last),
                     seconds_text(last.end, view.time));
}

}  // namespace

std::vector<std::string> tell_stuck(const SessionView& view, const SeenGroup& group,
                                    const std::vector<ProcessStacks>& stacks, const NamedCalls& calls) {
  const auto stuck = find_stuck(group);
  if (!stuck) return {"no rank is in a collective"};
  const std::string waited = seconds_text(stuck->call.start, view.time);
  if (stuck->missing.empty())
    return {fmt::format("all ranks have called {}, in which rank {} has been for {}", call_text(stuck->call),
                        stuck->rank, waited)};
  std::vector<std::string> lines;
  for (const int number : stuck->missing) {
    const SeenRank& rank = group.ranks[std::size_t(number)];
    std::string line = rank_text(view, number, rank);
    if (rank.alive && !rank.left)
      line += fmt::format(" has not called {}, in which rank {} has been for {}", call_text(stuck->call), stuck->rank,
                          waited);
    else
      line += fmt::format(" {}; rank {} has been in {} for {}", state_text(view, rank), stuck->rank,
                          call_text(stuck->call), waited);
    if (const SeenCall* other = rank.current(); other && rank.alive)
      line += fmt::format("; it is still in {}", call_text(*other));
    if (rank.alive && !rank.left) line += place_of(rank, stacks, calls);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string flight_table(const SessionView& view, const SeenGroup& group, std::size_t rows) {
  std::string text;
  for (int number = 0; number < int(group.ranks.size()); ++number) {
    const SeenRank& rank = group.ranks[std::size_t(number)];
    text += fmt::format("  {} {}\n", rank_text(view, number, rank), state_text(view, rank));
  }
  constexpr std::size_t kMostColumns = 8;
  if (group.ranks.size() > kMostColumns) return text;
  std::set<std::uint64_t> numbers;
  for (const SeenRank& rank : group.ranks)
    for (const SeenCall& call : rank.last) numbers.insert(call.call);
  while (numbers.size() > rows) numbers.erase(numbers.begin());
  if (numbers.empty()) return text;
  text += fmt::format("  {:>8}  {:<18} {:<16}", "CALL", "COLLECTIVE", "SIZE");
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank)
    text += fmt::format("  {:>10}", fmt::format("RANK {}", rank));
  text += "\n";
  for (const std::uint64_t number : numbers) {
    const SeenCall* first = nullptr;
    std::string cells;
    for (const SeenRank& rank : group.ranks) {
      const SeenCall* call = rank.find(number);
      if (!first) first = call;
      std::string cell = "-";  // not called, or no longer in the log
      if (call && first && call->name != first->name)
        cell = fit_columns(call->name, 10);
      else if (call)
        cell = seconds_text(call->start, call->end == 0 ? view.time : call->end) + (call->end == 0 ? "..."
                                                                                    : call->failed ? "!"
                                                                                                   : "");
      cells += fmt::format("  {:>10}", cell);
    }
    if (first)
      text += fmt::format("  {:>8}  {:<18} {:<16}{}\n", number, fit_columns(first->name, 18), size_text(*first), cells);
  }
  return text;
}

std::string report_group(const SessionFile& file, const SessionView& view, const SeenGroup& group, std::size_t rows,
                         std::chrono::nanoseconds patience) {
  std::set<std::uint32_t> slots;
  if (const auto stuck = find_stuck(group))
    for (const int number : stuck->missing)
      if (const auto slot = group.ranks[std::size_t(number)].slot) slots.insert(*slot);
  std::vector<ProcessStacks> stacks;
  if (!slots.empty())
    stacks =
        read_stacks(file, view, patience, [&](const SeenProcess& process) { return slots.contains(process.slot); });
  std::string text;
  for (const std::string& line : tell_stuck(view, group, stacks, name_calls(stacks))) text += line + "\n";
  return text + flight_table(view, group, rows);
}

}  // namespace shoal
