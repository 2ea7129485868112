#include <shoal/workers/train/communicator.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/group/communicator_state.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace shoal {

Communicator ShmGroup::join(int rank) const {
  if (rank < 0 || rank >= world_size())
    throw std::invalid_argument(
        fmt::format("rank {} of a group of {}: ranks go from 0 to {}", rank, world_size(), world_size() - 1));
  return Communicator(std::make_unique<Communicator::State>(parts_, layout(), rank));
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

void Communicator::abort() noexcept {
  state_->mailbox->break_off(std::make_exception_ptr(Error(fmt::format("rank {} has aborted the group", rank()))));
  state_->rounds.abort_for_all();  // last: whoever is told by it finds that messages are over, too
}
std::uint64_t Communicator::begun() const { return state_->recorder.calls(); }
int Communicator::rank() const { return state_->me; }
int Communicator::world_size() const { return state_->world; }
void Communicator::set_timeout(std::chrono::nanoseconds timeout) {
  state_->rounds.set_timeout(timeout);
  state_->mailbox->set_timeout(timeout);
}
Mailbox& Communicator::mailbox() const { return *state_->mailbox; }
std::shared_ptr<Mailbox> Communicator::share_mailbox() const { return state_->mailbox; }

void Communicator::all_reduce(Region data, c10::ScalarType type, ReduceOp op) {
  const TraceSpan span("all_reduce", data.bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size();
  if (data.bytes % size != 0)
    throw std::invalid_argument(
        fmt::format("all_reduce: {} bytes are no whole number of {}", data.bytes, c10::toString(type)));
  auto transfer = s.begin({Collective::all_reduce, std::uint32_t(type), std::uint32_t(op), -1, data.bytes}, data);
  if (transfer == State::Transfer::announced) {
    s.find_sources(transfer, data);
    kernel(s.sources, std::span(&data.data, 1), data.bytes / size);
  } else if (transfer == State::Transfer::in_place) {
    // Each rank reduces its part and writes it to all: every byte is read and written once, the least
    // there is.
    const State::Part part(data.bytes, s.world, s.me);
    for (int rank = 0; rank < s.world; ++rank) {
      s.destinations[std::size_t(rank)] = s.shown_by(rank, transfer, data) + part.begin;
      s.sources[std::size_t(rank)] = s.destinations[std::size_t(rank)];
    }
    SHOAL_KILL_POINT("group.in_place.before");
    kernel(s.sources, s.destinations, part.size / size);
    SHOAL_KILL_POINT("group.in_place.after");
    s.end_in_place("all_reduce");
  } else if (transfer == State::Transfer::apart) {
    s.do_apart("all_reduce", data, true, [&](const Region& copy) { s.all_reduce_staged(copy, kernel); });
  } else {
    s.all_reduce_staged(data, kernel);
  }
}

void Communicator::reduce(Region data, c10::ScalarType type, ReduceOp op, int root) {
  const TraceSpan span("reduce", data.bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  s.check_root("reduce", root);
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size();
  if (data.bytes % size != 0)
    throw std::invalid_argument(
        fmt::format("reduce: {} bytes are no whole number of {}", data.bytes, c10::toString(type)));
  auto transfer = s.begin({Collective::reduce, std::uint32_t(type), std::uint32_t(op), root, data.bytes}, data);
  if (transfer == State::Transfer::apart)
    return s.do_apart("reduce", data, s.me == root, [&](const Region& copy) { s.reduce_staged(copy, kernel, root); });
  if (transfer == State::Transfer::staged) return s.reduce_staged(data, kernel, root);
  if (s.me == root) {
    s.find_sources(transfer, data);
    kernel(s.sources, std::span(&data.data, 1), data.bytes / size);
  }
  if (transfer == State::Transfer::in_place) s.end_in_place("reduce");
}

void Communicator::broadcast(Region data, int root, Type type) {
  const TraceSpan span("broadcast", data.bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  s.check_root("broadcast", root);
  auto transfer = s.begin({Collective::broadcast, std::uint32_t(type), State::kNone, root, data.bytes}, data);
  if (transfer == State::Transfer::apart)
    return s.do_apart("broadcast", data, s.me != root, [&](const Region& copy) { s.broadcast_staged(copy, root); });
  if (transfer == State::Transfer::staged) return s.broadcast_staged(data, root);
  if (s.me != root) State::copy_bytes(data.data, s.shown_by(root, transfer, data), data.bytes);
  if (transfer == State::Transfer::in_place) s.end_in_place("broadcast");
}

void Communicator::all_gather(Region input, std::span<std::byte* const> outputs, Type type) {
  const TraceSpan span("all_gather", input.bytes);
  const Flight flight(state_->recorder);
  state_->check_outputs("all_gather", outputs.size());
  state_->collect({Collective::all_gather, std::uint32_t(type), State::kNone, -1, input.bytes}, input, outputs);
}

void Communicator::gather(Region input, std::span<std::byte* const> outputs, int root, Type type) {
  const TraceSpan span("gather", input.bytes);
  const Flight flight(state_->recorder);
  state_->check_root("gather", root);
  if (rank() == root) state_->check_outputs("gather", outputs.size());
  state_->collect({Collective::gather, std::uint32_t(type), State::kNone, root, input.bytes}, input,
                  rank() == root ? outputs : std::span<std::byte* const>());
}

void Communicator::State::collect(const Announcement& announcement, const Region& input,
                                  std::span<std::byte* const> outputs) {
  const char* what = name_of(announcement.what);
  auto transfer = begin(announcement, input);
  if (transfer == Transfer::staged) {
    through_stages(
        what, input.bytes, layout.chunk_bytes,
        [&](std::size_t at, std::size_t bytes, std::byte* stage) { State::copy_bytes(stage, input.data + at, bytes); },
        [&](std::size_t at, std::size_t bytes, std::uint32_t stage) {
          for (std::size_t rank = 0; rank < outputs.size(); ++rank)
            State::copy_bytes(outputs[rank] + at, int(rank) == me ? input.data + at : layout.stage(int(rank), stage),
                              bytes);
        });
    return;
  }
  for (std::size_t rank = 0; rank < outputs.size(); ++rank)
    State::copy_bytes(outputs[rank], int(rank) == me ? input.data : shown_by(int(rank), transfer, input), input.bytes);
  if (transfer == Transfer::in_place) end_in_place(what);
}

void Communicator::reduce_scatter(Region input, std::byte* output, c10::ScalarType type, ReduceOp op) {
  const TraceSpan span("reduce_scatter", input.bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size(), world = std::size_t(s.world), part = input.bytes / world;
  if (input.bytes % (size * world) != 0)
    throw std::invalid_argument(fmt::format("reduce_scatter: {} bytes are not {} equal parts of whole {}", input.bytes,
                                            world, c10::toString(type)));
  auto transfer = s.begin({Collective::reduce_scatter, std::uint32_t(type), std::uint32_t(op), -1, input.bytes}, input);
  if (transfer == State::Transfer::staged) {
    // A stage holds a piece of every part, so that all ranks have work in every round.
    const std::size_t step = s.layout.chunk_bytes / world / State::kLine * State::kLine;
    s.through_stages(
        "reduce_scatter", part, step,
        [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
          for (std::size_t rank = 0; rank < world; ++rank)
            State::copy_bytes(stage + rank * step, input.data + rank * part + begin, bytes);
        },
        [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
          for (int rank = 0; rank < s.world; ++rank)
            s.sources[std::size_t(rank)] = s.layout.stage(rank, stage) + std::size_t(s.me) * step;
          std::byte* result = output + begin;
          kernel(s.sources, std::span(&result, 1), bytes / size);
        });
    return;
  }
  s.find_sources(transfer, input);
  for (auto& source : s.sources) source += std::size_t(s.me) * part;
  kernel(s.sources, std::span(&output, 1), part / size);
  if (transfer == State::Transfer::in_place) s.end_in_place("reduce_scatter");
}

void Communicator::scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type) {
  const TraceSpan span("scatter", part_bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  s.check_root("scatter", root);
  const std::size_t world = std::size_t(s.world);
  if (s.me == root && input.bytes != part_bytes * world)
    throw std::invalid_argument(
        fmt::format("scatter: {} bytes are not {} parts of {} bytes", input.bytes, world, part_bytes));
  auto transfer = s.begin({Collective::scatter, std::uint32_t(type), State::kNone, root, part_bytes * world}, input);
  if (transfer == State::Transfer::staged) {
    const std::size_t step = s.layout.chunk_bytes / world / State::kLine * State::kLine;
    s.through_stages(
        "scatter", part_bytes, step,
        [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
          for (std::size_t rank = 0; rank < world && s.me == root; ++rank)
            State::copy_bytes(stage + rank * step, input.data + rank * part_bytes + begin, bytes);
        },
        [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
          State::copy_bytes(output + begin, s.layout.stage(root, stage) + std::size_t(s.me) * step, bytes);
        });
    return;
  }
  State::copy_bytes(output, s.shown_by(root, transfer, input) + std::size_t(s.me) * part_bytes, part_bytes);
  if (transfer == State::Transfer::in_place) s.end_in_place("scatter");
}

void Communicator::barrier() {
  const TraceSpan span("barrier");
  const Flight flight(state_->recorder);
  state_->begin({Collective::barrier, State::kNone, State::kNone, -1, 0}, {});
}

}  // namespace shoal
