#include <shoal/internal/workers/copies/device_copies.h>

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/internal/tensors/driver/on_stream.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

namespace shoal::detail {

namespace {

c10::EventFlag flag(bool timed) { return timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT; }

}  // namespace

// libtorch's guards enter an event's device and then the thread's own: where that is device 0 and this process does not
// use it, they would make a context on it. So what touches events enters the device before.

class DeviceCopies::Flight {
 public:
  Flight(c10::Device device, bool timed)
      : device(device),
        begun(std::in_place, device.type(), flag(timed)),
        done(std::in_place, device.type(), flag(timed)) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    try {
      const c10::DeviceGuard on_device(device);
      begun.reset();
      done.reset();
    } catch (const std::exception&) {
      // The device has failed: the events go as they can.
    }
  }

  const c10::Device device;
  std::optional<c10::Event> begun;  // recorded if times are taken
  std::optional<c10::Event> done;
  std::vector<at::Tensor> sources;  // what the copies read
};

namespace {

/// Whether a copy to the device can be made ahead: what lies on a device has work of other streams to wait for, and
/// tensors of several parts no storage that an allocator could be told about.
bool is_plain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.has_storage(); }

/// Lets this thread ask about events of the copies beside a capture of another one, which that would break otherwise.
class AskBesideCaptures {
 public:
  explicit AskBesideCaptures(c10::DeviceType type) {
    if (DeviceMemory* memory = find_device_memory(type)) unseen_.emplace(*memory);
  }

 private:
  std::optional<BesideCaptures> unseen_;
};

}  // namespace

DeviceCopies::DeviceCopies(c10::Device device, std::size_t most_unfinished)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)),
      most_unfinished_(std::max<std::size_t>(1, most_unfinished)) {}

DeviceCopies::~DeviceCopies() { finish(); }

void DeviceCopies::refuse_capture() const {
  if (!is_captured(c10::impl::VirtualGuardImpl(device().type()).getStream(device()))) return;
  throw std::invalid_argument(fmt::format(
      "DataLoader: a batch cannot be taken to {} while this thread's stream is captured into a graph, which "
      "would not take another one when it is replayed: take the batch before the capture begins, and copy "
      "each later one into the tensors that the graph reads before you replay it",
      device().str()));
}

std::shared_ptr<DeviceCopies::Flight> DeviceCopies::start(std::span<at::Tensor* const> tensors) {
  RECORD_USER_SCOPE("copy to device");
  collect();
  while (flights_.size() >= most_unfinished_) retire_oldest();
  const c10::DeviceGuard on_device(device());
  auto flight = std::make_shared<Flight>(device(), measures_);
  flight->sources.reserve(tensors.size());
  try {
    const OnStream on(stream_);
    if (measures_) flight->begun->record(stream_);
    for (at::Tensor* tensor : tensors) {
      if (!is_plain(*tensor)) continue;
      flight->sources.push_back(*tensor);  // before the copy: it may have begun if queueing it throws
      *tensor = tensor->to(device(), /*non_blocking=*/true);
    }
    flight->done->record(stream_);
    flights_.push_back(flight);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    finish();
    wait_for_stream();  // what no event is behind
    std::rethrow_exception(error);
  }
  return flight;
}

void DeviceCopies::deliver(const Flight& flight, std::span<at::Tensor* const> tensors) {
  const c10::impl::VirtualGuardImpl guard(device().type());
  const c10::Stream current = guard.getStream(device());
  const c10::DeviceGuard on_device(device());
  flight.done->block(current);
  for (at::Tensor* tensor : tensors) {
    if (tensor->device() == device() && tensor->has_storage())
      guard.recordDataPtrOnStream(tensor->storage().data_ptr(), current);
    else
      *tensor = tensor->to(device());
  }
}

void DeviceCopies::collect() {
  const AskBesideCaptures asks(device().type());
  while (!flights_.empty() && flights_.front()->done->query()) retire_oldest();
}

void DeviceCopies::retire_oldest() {
  const AskBesideCaptures asks(device().type());
  const c10::DeviceGuard on_device(device());
  Flight& flight = *flights_.front();
  flight.done->synchronize();
  if (flight.begun->was_marked_for_recording()) try {
      nanoseconds_ += std::int64_t(1e6 * flight.begun->elapsedTime(*flight.done));
    } catch (const c10::Error&) {
      measures_ = false;  // a device whose events tell no times
    }
  flight.sources.clear();  // whoever is to deliver it keeps the flight
  flights_.pop_front();
}

void DeviceCopies::finish() noexcept {
  try {
    while (!flights_.empty()) retire_oldest();
  } catch (const std::exception&) {
    // The device has failed and does nothing any more; whoever uses it next is told.
    flights_.clear();
  }
}

void DeviceCopies::wait_for_stream() noexcept {
  try {
    const AskBesideCaptures asks(device().type());
    stream_.synchronize();
  } catch (const std::exception&) {
    // As above.
  }
}

void DeviceCopies::measure(bool on) {
  finish();
  measures_ = on;
  nanoseconds_ = 0;
}

}  // namespace shoal::detail
