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

std::string rank_text(const SessionView& view, const SeenGroup& group, int index) {
  const SeenRank& rank = group.ranks[std::size_t(index)];
  const int number = group.number_of(index);
  if (!rank.joined) return fmt::format("rank {}", number);
  const SeenProcess* process = rank.slot ? view.process(*rank.slot) : nullptr;
  const std::string name = process && !process->name.empty() ? harmless(process->name) + ", " : "";
  return fmt::format("rank {} ({}pid {})", number, name, rank.pid);
}

std::string place_of(const SeenRank& rank, const std::vector<ProcessStacks>& stacks, const NamedCalls& calls) {
  const auto process = std::ranges::find(stacks, rank.pid, &ProcessStacks::pid);
  if (process == stacks.end() || process->threads.empty()) return "";
  auto thread = std::ranges::find(process->threads, rank.thread, &ThreadStack::thread);
  // It has called nothing yet; or a thread of shoal's own does its collectives, and the program's does not ask for one.
  if (thread == process->threads.end() || thread->name.starts_with("shoal-")) thread = process->threads.begin();
  return "; it is in " + place_in_program(rank.pid, *thread, calls);
}

/// Ranks that live and are in no collective, though none of theirs has just failed.
std::vector<int> find_idle(const SeenGroup& group) {
  std::vector<int> idle;
  for (int index = 0; index < int(group.ranks.size()); ++index) {
    const SeenRank& rank = group.ranks[std::size_t(index)];
    if (rank.alive && !rank.left && !rank.current() && (rank.last.empty() || !rank.last.back().failed))
      idle.push_back(index);
  }
  return idle;
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
  const int waiting = group.number_of(stuck->rank);
  if (stuck->missing.empty())
    return {fmt::format("all ranks have called {}, in which rank {} has been for {}", call_text(stuck->call), waiting,
                        waited)};
  std::vector<std::string> lines;
  for (const int index : stuck->missing) {
    const SeenRank& rank = group.ranks[std::size_t(index)];
    std::string line = rank_text(view, group, index);
    if (rank.alive && !rank.left)
      line +=
          fmt::format(" has not called {}, in which rank {} has been for {}", call_text(stuck->call), waiting, waited);
    else
      line += fmt::format(" {}; rank {} has been in {} for {}", state_text(view, rank), waiting, call_text(stuck->call),
                          waited);
    if (const SeenCall* other = rank.current(); other && rank.alive)
      line += fmt::format("; it is still in {}", call_text(*other));
    if (rank.alive && !rank.left) line += place_of(rank, stacks, calls);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string flight_table(const SessionView& view, const SeenGroup& group, std::size_t rows) {
  std::string text;
  for (int index = 0; index < int(group.ranks.size()); ++index)
    text += fmt::format("  {} {}\n", rank_text(view, group, index), state_text(view, group.ranks[std::size_t(index)]));
  constexpr std::size_t kMostColumns = 8;
  if (group.ranks.size() > kMostColumns) return text;
  std::set<std::uint64_t> numbers;
  for (const SeenRank& rank : group.ranks)
    for (const SeenCall& call : rank.last) numbers.insert(call.call);
  while (numbers.size() > rows) numbers.erase(numbers.begin());
  if (numbers.empty()) return text;
  text += fmt::format("  {:>8}  {:<18} {:<16}", "CALL", "COLLECTIVE", "SIZE");
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank)
    text += fmt::format("  {:>10}", fmt::format("RANK {}", group.number_of(int(rank))));
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

std::vector<std::string> tell_idle(const SessionView& view, const SeenGroup& group,
                                   const std::vector<ProcessStacks>& stacks, const NamedCalls& calls) {
  std::vector<std::string> lines;
  for (const int index : find_idle(group)) {
    const SeenRank& rank = group.ranks[std::size_t(index)];
    lines.push_back(fmt::format("{} is in no collective: it {}{}", rank_text(view, group, index),
                                state_text(view, rank), place_of(rank, stacks, calls)));
  }
  return lines;
}

std::string report_group(const SessionFile& file, const SessionView& view, const SeenGroup& group, std::size_t rows,
                         std::chrono::nanoseconds patience, IdleRanks idle) {
  const auto stuck = find_stuck(group);
  const bool asks_idle = idle == IdleRanks::asked && (!stuck || stuck->missing.empty());
  std::set<std::uint32_t> slots;
  for (const int index : asks_idle ? find_idle(group) : stuck ? stuck->missing : std::vector<int>())
    if (const auto slot = group.ranks[std::size_t(index)].slot) slots.insert(*slot);
  std::vector<ProcessStacks> stacks;
  if (!slots.empty())
    stacks =
        read_stacks(file, view, patience, [&](const SeenProcess& process) { return slots.contains(process.slot); });
  std::string text;
  const NamedCalls calls = name_calls(stacks);
  if (asks_idle)
    for (const std::string& line : tell_idle(view, group, stacks, calls)) text += line + "\n";
  if (text.empty())
    for (const std::string& line : tell_stuck(view, group, stacks, calls)) text += line + "\n";
  return text + flight_table(view, group, rows);
}

}  // namespace shoal
