#include <shoal/internal/ipc/pipe/any_connection.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/pipe/core.h>
#include <shoal/internal/ipc/pipe/end.h>
#include <shoal/internal/ipc/pipe/readiness.h>
#include <shoal/internal/ipc/process/session.h>

#include <stdexcept>

namespace shoal {

std::pair<Hold, Hold> AnyConnection::make(const PipeOptions& options, std::uint64_t schema) {
  if (options.capacity == 0 || options.capacity >= RingLayout::kLargestCapacity)
    throw std::invalid_argument(
        fmt::format("pipe capacity is {}: give 1 to {} messages", options.capacity, RingLayout::kLargestCapacity - 1));
  auto ring = [&] {
    return Ring::create(std::uint32_t(options.capacity), schema, options.byte_capacity, options.name);
  };
  Ring to_first = ring();
  std::optional<Ring> to_second;
  if (options.duplex) to_second = ring();
  Ring* back = to_second ? &*to_second : nullptr;
  Hold first = pipe_end::create(&to_first, back, 0);
  Hold second = pipe_end::create(back, &to_first, 1);
  return {std::move(first), std::move(second)};
}

AnyConnection::AnyConnection(Hold end, std::uint64_t schema) : core_(std::make_shared<Core>()) {
  const PipeEndLayout& layout = pipe_end::open(end);
  Heap& heap = Session::current().heap();
  auto open_ring = [&](const HoldRef& ref, std::optional<Ring>& ring) {
    if (!ref.block) return;
    if (!heap.is_hold(ref, layout.owner)) throw DecodeError("an end of a pipe without its pipe");
    ring = Ring::open(Hold::share_of(ref.block), schema);  // the end, which is ours, keeps it alive meanwhile
  };
  open_ring(layout.in, core_->in);
  open_ring(layout.out, core_->out);
  core_->end = std::move(end);
}

AnyConnection::Core& AnyConnection::core(const char* operation) const {
  if (!core_ || core_->closed)
    throw std::logic_error(fmt::format("Connection::{}: the connection is closed", operation));
  return *core_;
}

const Hold& AnyConnection::end() const { return core("encode").end; }
bool AnyConnection::closed() const noexcept { return !core_ || core_->closed; }
bool AnyConnection::readable() const { return core("readable").in.has_value(); }
bool AnyConnection::writable() const { return core("writable").out.has_value(); }

void AnyConnection::close() noexcept {
  if (!core_ || core_->closed.exchange(true)) return;
  {
    std::lock_guard lock(core_->mutex);
    core_->end.release();
  }
  if (core_->watched) ReadinessWatch::look_again(*core_);
}

void AnyConnection::send(Encoder& message, Deadline deadline, const char* operation) const {
  Core& core = this->core(operation);
  if (!core.out)
    throw std::invalid_argument(fmt::format("Connection::{}: this end of a one-way pipe only receives", operation));
  for (;;) {
    switch (core.out->put(message, deadline)) {
      case RingStatus::kDone:
        return;
      case RingStatus::kTimedOut:
        throw TimeoutError(fmt::format("Connection::{}: timed out: there was no room", operation));
      case RingStatus::kClosed:
        throw BrokenPipe(fmt::format("Connection::{}: the other end of the pipe is gone", operation));
      case RingStatus::kPeersDied:
        break;  // if the other end is gone the ring is closed by now; else it is in this very process
    }
  }
}

bool AnyConnection::try_send(Encoder& message) const {
  try {
    send(message, Deadline::now(), "try_send");
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

bool AnyConnection::receive(Received& message, Deadline deadline, const char* operation) const {
  Core& core = this->core(operation);
  if (!core.in)
    throw std::invalid_argument(fmt::format("Connection::{}: this end of a one-way pipe only sends", operation));
  for (;;) {
    RingStatus status = core.in->get(message, deadline);
    if (core.watched) ReadinessWatch::look_again(core);
    switch (status) {
      case RingStatus::kDone:
        return true;
      case RingStatus::kTimedOut:
        return false;
      case RingStatus::kClosed:
        throw EndOfFile(fmt::format("Connection::{}: the other end of the pipe is gone", operation));
      case RingStatus::kPeersDied:
        break;  // as in send
    }
  }
}

bool AnyConnection::poll_until(Deadline deadline) const {
  Core& core = this->core("poll");
  if (!core.in) throw std::invalid_argument("Connection::poll: this end of a one-way pipe only sends");
  for (;;) {
    RingStatus status = core.in->wait_for_message(deadline);
    if (status != RingStatus::kPeersDied) return status == RingStatus::kDone;
  }
}

int AnyConnection::fileno() const {
  Core& core = this->core("fileno");
  if (!core.in) throw std::invalid_argument("Connection::fileno: this end of a one-way pipe only sends");
  return ReadinessWatch::current().descriptor(core_);
}

}  // namespace shoal
