// The steps: comparing calls, messages in the columns, and what is done about a failure.
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/workers/train/group/ranks_late.h>
#include <shoal/internal/workers/train/group/time_out_report.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>
#include <shoal/internal/workers/train/two_level/two_level_state.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>

#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

/// How much longer a column waits than the ranks of a host do for each other: these know better who is missing, and shall
/// be the first to give up.
std::chrono::nanoseconds grace_of(std::chrono::nanoseconds timeout) {
  return std::clamp<std::chrono::nanoseconds>(timeout / 10, std::chrono::seconds(1), std::chrono::seconds(5));
}

/// Whether the process is stopped, by a signal or a debugger.
bool is_stopped(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < line.size() &&
         (line[name_end + 2] == 'T' || line[name_end + 2] == 't');
}

std::string describe(const CallNote& note) {
  if (note.what == Collective::refused)
    return fmt::format("nothing, as it refuses its {}", name_of(Collective(note.op)));
  std::string text = fmt::format("{}({} bytes", name_of(note.what), note.bytes);
  if (note.op != ~0u) text += fmt::format(", {} of", name_of(ReduceOp(note.op)));
  if (note.type < std::uint32_t(c10::ScalarType::Undefined))
    text += fmt::format("{} {}", note.op == ~0u ? " of" : "", c10::toString(c10::ScalarType(note.type)));
  if (note.root >= 0) text += fmt::format(", root {}", note.root);
  return text + ")" + text_of(note.pass);
}

/// Messages of the same collective have the same tag, and if hosts disagree about it, their messages never meet: Gloo ends
/// the process where two that meet differ in size. Two bits say which step it is.
std::uint32_t tag_of(std::uint64_t number, const CallNote& call, int phase, std::uint32_t piece = 0) {
  std::uint64_t hash = number;
  for (const std::uint64_t word : {std::uint64_t(call.what), std::uint64_t(call.type), std::uint64_t(call.op),
                                   std::uint64_t(std::uint32_t(call.root)), call.bytes, std::uint64_t(piece),
                                   std::uint64_t(call.pass.model) << 32U | call.pass.number})
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u ^ hash >> 29;
  return (std::uint32_t(hash >> 32) << 2 | std::uint32_t(phase)) & 0x7fffffff;
}

}  // namespace

TwoLevelGroup::State::State(Parts parts)
    : map(std::move(parts.map)),
      host(std::move(parts.host)),
      store(std::move(parts.store)),
      column(std::move(parts.column)),
      board(std::move(parts.board)),
      mail(host->share_mailbox()),
      place(std::move(parts.place)),
      link_timeout(parts.link_timeout),
      columns(map.columns()),
      column_index(map.my_local() < columns ? map.my_local() : -1),
      notes(map.hosts.size()),
      with_note(map.hosts.size()) {
  // A thread of the network's works for each rank: the kernel lets it wait for up to 4 ms for one that only spins.
  host->state_->rounds.set_cpus_needed(2);
  host->state_->recorder.begin_as(map.me);
  FailureWatch::Steps steps;
  steps.tell = [this](const Failure& failure) {
    if (failure.kind == Failure::timed_out) report_time_out_here();
  };
  steps.wake = [this](const Failure& failure) {
    end_messages(failure);
    std::lock_guard lock(leaving);
    if (host) host->state_->rounds.abort();
  };
  watch = std::make_unique<FailureWatch>(map, *board, *store, column.get(), std::move(steps));
  // The failure is told before the host's ranks are asked where they are, which takes some time.
  host->state_->rounds.set_when_late(
      [this](const std::vector<int>& ranks) { watch->report({Failure::timed_out, missing_text(ranks), -1}, true); });
}

TwoLevelGroup::State::~State() {
  if (owner.is_this()) {
    tell_of_deaths();
    watch.reset();  // says that this rank leaves, before its connections end
    return;
  }
  // A forked copy has neither the threads nor a right to say anything.
  [[maybe_unused]] auto* left_watch = watch.release();
  [[maybe_unused]] auto* left_column = column.release();
  [[maybe_unused]] auto* left_store = store.release();
}

/// What ended this rank's waits for messages alone, no collective's: the others learn it from this rank, which is about to
/// leave and may be the one that keeps the store.
void TwoLevelGroup::State::tell_of_deaths() {
  if (watch->failure()) return;
  if (const auto gone = dead_on_host(map, *board, local_ranks())) {
    watch->report(*gone, true);
  } else if (const auto other_hosts = remote.lock()) {
    for (int rank = 0; rank < map.world_size(); ++rank)
      if (other_hosts->state_of(rank) == RemoteMail::Gone::died && !watch->failure())
        watch->report_death(rank, other_hosts->end_of(rank));
  }
}

void TwoLevelGroup::State::report_time_out_here() {
  std::unique_lock lock(leaving);
  if (!host) return;
  const auto parts = host->state_->parts;  // keeps the layout
  GroupLayout& layout = host->state_->layout;
  lock.unlock();
  report_time_out(layout, IdleRanks::asked);
}

std::size_t TwoLevelGroup::State::carried_elsewhere(int column_number) const {
  std::size_t count = 0;
  for (int other = 0; other < hosts(); ++other)
    if (other != map.my_host()) count += map.carried(other, column_number).size();
  return count;
}

void TwoLevelGroup::State::check_root(const char* what, int root) const {
  if (root < 0 || root >= map.world_size())
    throw std::invalid_argument(fmt::format("{}: root {} in a group of {} ranks", what, root, map.world_size()));
}

void TwoLevelGroup::State::check_usable(const char* what) {
  if (!owner.is_this())
    throw Error(fmt::format("{}: rank {} belongs to the process that joined the group, not to a forked copy of it",
                            what, map.me));
  if (auto failure = watch->failure()) {
    leave_host(*failure);
    throw_failure(what, *failure);
  }
}

void TwoLevelGroup::State::leave_host(const Failure& failure) {
  end_messages(failure);
  std::lock_guard lock(leaving);
  host.reset();
}

std::byte* TwoLevelGroup::State::scratch(std::size_t bytes) {
  if (memory_used == memory.size()) memory.emplace_back();
  std::vector<std::byte>& piece = memory[memory_used++];
  if (piece.size() < bytes) {
    piece.clear();  // nothing of it is to be moved
    piece.resize(bytes);
  }
  return piece.data();
}

void TwoLevelGroup::State::set_deadlines() {
  deadline = Deadline::after(timeout + grace_of(timeout));
  host->set_timeout(timeout);
}

void TwoLevelGroup::State::compare_on_host(const CallNote& note) {
  const std::size_t count = std::size_t(local_ranks());
  if (count == 1) return;
  CallNote own = note;
  std::vector<CallNote> calls(count);
  std::vector<std::byte*> places;
  places.reserve(count);
  for (CallNote& call : calls) places.push_back(reinterpret_cast<std::byte*>(&call));
  host->all_gather({reinterpret_cast<std::byte*>(&own), sizeof own, nullptr}, places);
  own_note.call = calls[0];
  for (std::size_t local = 1; local < count; ++local) {
    if (calls[local] == calls[0]) continue;
    own_note.other_rank = map.rank_at(map.my_host(), int(local));
    own_note.other_call = calls[local];
    return meet();  // throws
  }
}

void TwoLevelGroup::State::send_notes() {
  if (notes_sent) return;
  notes_sent = true;
  if (!in_column()) return;
  std::vector<Bytes> pieces;
  for (int other = 0; other < hosts(); ++other) {
    if (other == map.my_host()) continue;
    pieces.assign(1, std::as_bytes(std::span(&own_note, 1)));
    const std::vector<Bytes>& data = with_note[std::size_t(other)];
    pieces.insert(pieces.end(), data.begin(), data.end());
    column->lines.post(other, pieces);
  }
}

void TwoLevelGroup::State::send(int to, const void* data, std::size_t bytes, int phase) {
  if (bytes == 0) return;
  if (!notes_sent && bytes <= kWithNoteBytes)
    with_note[std::size_t(to)].emplace_back(static_cast<const std::byte*>(data), bytes);
  else
    posted.push_back({column->gloo.send(to, data, bytes, tag_of(number, own_note.call, phase, piece)), to});
}

void TwoLevelGroup::State::receive(int from, void* data, std::size_t bytes, int phase) {
  if (bytes == 0) return;
  if (!notes_sent && bytes <= kWithNoteBytes)
    expected.push_back({from, static_cast<std::byte*>(data), bytes});
  else
    posted.push_back({column->gloo.receive(from, data, bytes, tag_of(number, own_note.call, phase, piece)), from});
}

void TwoLevelGroup::State::wait_for(const GlooGroup::Pending& message) {
  board->wait_for(map.rank_at(message.peer, column_index));
  {
    const MailMoves moves;
    column->gloo.wait(message, deadline);
  }
  board->wait_for(-1);
}

void TwoLevelGroup::State::forget_posts() {
  notes_sent = false;
  for (auto& data : with_note) data.clear();
  expected.clear();
  posted.clear();
}

/// The other hosts' notes, and what came with those of this host's mind: the same data in the same order as are expected.
void TwoLevelGroup::State::take_notes() {
  for (int other = 0; other < hosts(); ++other) {
    HostNote& note = notes[std::size_t(other)];
    if (other == map.my_host()) {
      note = own_note;
      continue;
    }
    board->wait_for(map.rank_at(other, column_index));
    Bytes message = column->lines.take(other, deadline);
    board->wait_for(-1);
    const auto cut = [&](void* to, std::size_t bytes) {
      if (message.size() < bytes)
        throw Error(fmt::format("{} sent {} bytes too few", map.describe(map.rank_at(other, column_index)),
                                bytes - message.size()));
      std::memcpy(to, message.data(), bytes);
      message = message.subspan(bytes);
    };
    cut(&note, sizeof note);
    if (note.number != number)
      throw Error(fmt::format("{} is in collective {}, and this rank in {}",
                              map.describe(map.rank_at(other, column_index)), note.number, number));
    if (!agrees(note)) continue;
    for (const Expected& each : expected)
      if (each.host == other) cut(each.data, each.bytes);
  }
  column->lines.flush(deadline);
}

void TwoLevelGroup::State::meet() {
  SHOAL_KILL_POINT("hosts.meet");
  send_notes();
  // Who called what, if not all call the same: the first host that is not of host 0's mind, the same for all.
  struct Verdict {
    std::int32_t rank = -1, other_rank = -1;
    CallNote call, other_call;
  } verdict;
  if (in_column()) {
    const TraceSpan span("columns");
    take_notes();
    for (const HostNote& note : notes) {
      if (note.other_rank >= 0)
        verdict = {note.rank, note.other_rank, note.call, note.other_call};
      else if (note.call != notes[0].call)
        verdict = {notes[0].rank, note.rank, notes[0].call, note.call};
      if (verdict.rank >= 0) break;
    }
    // Messages to and from a host of another mind never meet; all others are on their way.
    for (const Posted& message : posted) {
      if (agrees(notes[std::size_t(message.host)])) wait_for(message.pending);
    }
    posted.clear();
  }
  // Ranks in no column hear of it from the first that is in one. Where this host itself disagrees, all know.
  if (local_ranks() > columns && own_note.other_rank < 0)
    host->broadcast({reinterpret_cast<std::byte*>(&verdict), sizeof verdict, nullptr}, 0);
  else if (!in_column())
    verdict = {own_note.rank, own_note.other_rank, own_note.call, own_note.other_call};
  if (verdict.rank < 0) return;
  const std::string one = map.describe(verdict.rank), other = map.describe(verdict.other_rank);
  throw CollectiveMismatch(
      fmt::format("{} called {} where {} called {}: all ranks have to call the same collectives in the same order{}",
                  one, describe(verdict.call), other, describe(verdict.other_call),
                  why_apart(one, verdict.call.pass, other, verdict.other_call.pass)));
}

void TwoLevelGroup::State::finish() {
  SHOAL_KILL_POINT("hosts.finish");
  const TraceSpan span("columns");
  for (const Posted& message : posted) wait_for(message.pending);
  posted.clear();
}

void TwoLevelGroup::State::reduce_hosts(const ReduceKernel& kernel, std::vector<const std::byte*>& sources,
                                        std::byte* result, std::size_t bytes) {
  kernel(sources, std::span(&result, 1), bytes / kernel.element_size());
}

void TwoLevelGroup::State::average(std::byte* data, std::size_t bytes, Type type, ReduceOp op) const {
  if (op != ReduceOp::avg || bytes == 0) return;
  const auto count = std::int64_t(bytes / c10::elementSize(type));
  at::from_blob(data, {count}, at::TensorOptions(type)).div_(map.world_size());
}

void TwoLevelGroup::State::spread(const Region& data, int shares) {
  SHOAL_KILL_POINT("hosts.spread");
  if (local_ranks() == 1) return;
  for (int index = 0; index < shares; ++index) {
    const Share share(data.bytes, shares, index);
    if (share.size != 0) host->broadcast({data.data + share.begin, share.size, data.hold}, index);
  }
}

void TwoLevelGroup::State::deliver_to(int local, const std::byte* carried, std::span<const std::size_t> sizes,
                                      std::byte* output) {
  const std::size_t count = std::size_t(local_ranks());
  std::vector<std::size_t> from(count), to(count);
  if (in_column()) to[std::size_t(local)] = sizes[std::size_t(column_index)];
  if (map.my_local() == local)
    for (std::size_t index = 0; index < sizes.size(); ++index) from[index] = sizes[index];
  host->all_to_all({const_cast<std::byte*>(carried), to[std::size_t(local)], nullptr}, to, output, from);
}

void TwoLevelGroup::State::deliver_parts(const std::byte* carried, std::byte* output, std::size_t part) {
  if (local_ranks() <= columns) {
    std::memcpy(output, carried, part);
    return;
  }
  const std::size_t count = std::size_t(local_ranks());
  std::vector<std::size_t> from(count), to(count);
  std::size_t bytes = 0;
  for (std::size_t local = 0; local < count && in_column(); ++local)
    if (int(local) % columns == column_index) bytes += to[local] = part;
  from[std::size_t(map.my_local() % columns)] = part;
  host->all_to_all({const_cast<std::byte*>(carried), bytes, nullptr}, to, output, from);
}

void TwoLevelGroup::State::end_messages(const Failure& failure) {
  try {
    throw_failure("a message", failure);
  } catch (const std::exception&) {
    mail->break_off(std::current_exception());
  }
}

void TwoLevelGroup::State::throw_failure(const char* what, const Failure& failure) const {
  const std::string text = fmt::format("{}: {}", what, failure.text);
  if (failure.kind == Failure::died || failure.kind == Failure::unreachable) throw PeerDied(text);
  if (failure.kind == Failure::timed_out) throw TimeoutError(text);
  throw Error(text);
}

/// Which rank a rank of this host has waited for too long. One that waits for another host itself is not the one, unless it
/// is stopped.
std::string TwoLevelGroup::State::missing_text(std::span<const int> local_ranks) const {
  std::vector<std::string> missing;
  int awaited = -1;
  for (const int local : local_ranks) {
    if (local < 0 || local >= map.ranks_on(map.my_host())) continue;
    const HostMap::Rank& rank = map.hosts[std::size_t(map.my_host())].ranks[std::size_t(local)];
    if (is_stopped(rank.pid))
      return fmt::format("{} has not come within {}: it is stopped", map.describe(rank.rank), waited_text());
    if (const int other = board->awaited_by(local); other >= 0)
      awaited = other;
    else
      missing.push_back(map.describe(rank.rank));
  }
  if (missing.empty() && awaited >= 0) missing.push_back(map.describe(awaited));
  return fmt::format("{} {} not come within {}",
                     missing.empty() ? "a rank" : fmt::format("{}", fmt::join(missing, ", ")),
                     missing.size() > 1 ? "have" : "has", waited_text());
}

/// Whom this rank's column has waited for, and with it those that others of this host wait for: which of them keeps the
/// rest waiting is known on their host, and if that could tell, this one would have heard it.
std::string TwoLevelGroup::State::late_text(int culprit) const {
  std::set<int> late{culprit};
  for (int local = 0; local < local_ranks(); ++local)
    if (const int other = board->awaited_by(local); other >= 0) late.insert(other);
  std::vector<std::string> names;
  names.reserve(late.size());
  for (const int rank : late) names.push_back(rank >= 0 ? map.describe(rank) : "a rank of the other hosts");
  return fmt::format("{} {} not come within {}", fmt::join(names, ", "), names.size() > 1 ? "have" : "has",
                     waited_text());
}

std::string TwoLevelGroup::State::waited_text() const {
  return fmt::format("{} ms", std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
}

/// Says what went wrong as far as this rank can tell; all throw what the first one said.
void TwoLevelGroup::State::fail(const char* what, std::exception_ptr error) {
  Failure seen;
  bool is_sure = true;
  try {
    std::rethrow_exception(error);
  } catch (const GlooFailure& failure) {
    const int culprit = failure.peer() >= 0 ? map.rank_at(failure.peer(), column_index) : -1;
    is_sure = (culprit >= 0 && culprit == map.keeper.rank) || failure.why() != GlooFailure::ended;
    const std::string who = culprit >= 0 ? map.describe(culprit) : "the other hosts";
    if (failure.why() == GlooFailure::late)
      seen = {Failure::timed_out, late_text(culprit), culprit};
    else if (failure.why() == GlooFailure::unreachable)
      seen = {Failure::unreachable, fmt::format("{} cannot be reached any more: {}", who, failure.what()), culprit};
    else if (culprit >= 0 && watch->has_left(culprit))
      seen = {Failure::died, who + " has left the group", culprit};
    else
      seen = {Failure::died, fmt::format("{} died: {}", who, failure.what()), culprit};
  } catch (const PeerDied& failure) {
    std::vector<int> left;
    for (int local = 0; local < local_ranks(); ++local)
      if (board->has_left(local)) left.push_back(map.rank_at(map.my_host(), local));
    if (auto gone = dead_on_host(map, *board, local_ranks()))
      seen = *gone;
    else if (!left.empty())
      seen = {Failure::died, map.describe(left[0]) + " has left the group", left[0]};
    else
      seen = {Failure::died, failure.what()};
  } catch (const RanksLate& failure) {
    seen = {Failure::timed_out, missing_text(failure.ranks())};
  } catch (const std::exception& failure) {
    seen = {Failure::aborted, fmt::format("{} could not do its part: {}", map.describe(map.me), failure.what())};
  }
  const Failure first = watch->report(seen, is_sure);  // ends the connections: what is posted is over
  if (column) column->gloo.settle();
  forget_posts();
  for (auto& messages : posted_pieces) messages.clear();
  leave_host(first);
  if (map.keeper.is_me) watch->keep_store(first);
  throw_failure(what, first);
}

}  // namespace shoal
