// Collectives of values: each rank's is encoded, sent to those that it is for, and decoded there.
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/communicator_state.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>

#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace shoal {

namespace {

/// What a rank tells the others of its value before it sends it, in its stage of the first round.
struct ValueNote {
  std::uint64_t schema;
  std::uint32_t failed;  // 1: it cannot be encoded, and `text` is why; otherwise `text` is the type
  std::uint32_t length;
  char text[1008];

  void say(std::string_view what) {
    length = std::uint32_t(std::min(what.size(), sizeof text));
    std::memcpy(text, what.data(), length);
  }
  std::string_view said() const { return {text, std::min<std::size_t>(length, sizeof text)}; }
};
static_assert(std::is_trivially_copyable_v<ValueNote>);

}  // namespace

/// All ranks come to the same, since all read the same notes.
void Communicator::State::compare_notes(const ObjectExchange& exchange, std::exception_ptr own_failure) {
  const char* what = name_of(exchange.what);
  auto note_of = [&](int rank) { return reinterpret_cast<const ValueNote*>(layout.stage(rank, rounds.last_stage())); };
  int other_type = -1, failed = -1;
  for (int rank = world - 1; rank >= 0; --rank) {
    const ValueNote& note = *note_of(rank);
    if (note.failed != 0) failed = rank;
    if (note.schema != exchange.schema) other_type = rank;
  }
  if (other_type >= 0) {
    const ValueNote& note = *note_of(other_type);
    throw CollectiveMismatch(
        fmt::format("rank {} called {} of {} where rank {} called it of {}: all ranks have to give values of one type",
                    me, what, exchange.type, other_type, note.failed != 0 ? "another type" : note.said()));
  }
  if (own_failure) std::rethrow_exception(own_failure);
  if (failed >= 0)
    throw Error(
        fmt::format("{}: rank {} could not send its {}: {}", what, failed, exchange.type, note_of(failed)->said()));
}

/// One round for the notes, by which all know that all can send, and another for the messages. So nobody's exception
/// leaves the others waiting, nor a message in an inbox.
void Communicator::exchange(const ObjectExchange& exchange) {
  static_assert(sizeof(ValueNote) <= State::kSmallBytes);  // it goes along with its announcement
  State& s = *state_;
  const char* what = name_of(exchange.what);
  const TraceSpan span(what);
  const Flight flight(state_->recorder);
  if (exchange.root != -1) s.check_root(what, exchange.root);
  s.rounds.check_usable();
  auto goes = [&](int from, int to) {
    switch (exchange.what) {
      case Collective::gather_object:
        return to == exchange.root;
      case Collective::broadcast_object:
        return from == exchange.root && to != from;
      case Collective::scatter_object:
        return from == exchange.root;
      default:
        return true;
    }
  };
  std::vector<std::unique_ptr<Encoder>> messages(std::size_t(s.world));
  std::exception_ptr failure;
  ValueNote note{exchange.schema, 0, 0, {}};
  note.say(exchange.type);
  auto fail = [&](std::string_view why) {
    failure = std::current_exception();
    note.failed = 1;
    note.say(why);
  };
  try {
    for (int to = 0; to < s.world; ++to) {
      if (!goes(s.me, to)) continue;
      auto& message = messages[std::size_t(to)] = std::make_unique<Encoder>();
      s.buffers.begin_value(*message);
      exchange.encode(*message, to);
      // Now, when what keeps it from being sent is still everybody's error.
      if (message->handles().size() > UINT16_MAX)
        throw std::invalid_argument(fmt::format("a value with {} handles (tensors, queues, ...): at most {} fit",
                                                message->handles().size(), UINT16_MAX));
      if (message->total() > RingCell::kInlineBytes) message->in_block();
    }
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception that is no std::exception");
  }
  s.begin({exchange.what, State::kNone, State::kNone, exchange.root, sizeof note},
          {reinterpret_cast<std::byte*>(&note), sizeof note, nullptr});
  s.compare_notes(exchange, failure);
  for (int to = 0; to < s.world; ++to)
    if (messages[std::size_t(to)]) s.buffers.send_value(to, *messages[std::size_t(to)]);
  s.meet(what);
  // All are taken before any is read: what cannot be read is this rank's error alone, and the group goes on.
  std::vector<PeerBuffers::Value> values(std::size_t(s.world));
  for (int from = 0; from < s.world; ++from)
    if (goes(from, s.me)) values[std::size_t(from)] = s.buffers.take_value(from);
  for (int from = 0; from < s.world; ++from)
    if (auto& value = values[std::size_t(from)]; value.message) exchange.decode(*value.decoder, from);
}

}  // namespace shoal
