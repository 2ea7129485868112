// Batches on their way to a device before the loop asks for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/tensors/cuda/pinned.h>
#include <shoal/internal/workers/collate/tensors_in.h>
#include <shoal/internal/workers/copies/device_copies.h>
#include <shoal/internal/workers/loader/batch_stream.h>
#include <shoal/internal/workers/plan/loader_task.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::detail {

template <class Batch>
std::vector<at::Tensor*> tensors_in(Batch& batch) {
  std::vector<at::Tensor*> tensors;
  for_each_tensor(batch, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
  return tensors;
}

/// Between a loader's stream of batches and its loop: takes those that lie ready, at most `most` of them, and starts
/// their copies. No thread is needed, since the device copies by itself. What a batch brings besides its tensors (an
/// error, faults, its place) comes with it when it is delivered, so a loop sees nothing of this but tensors of the
/// device. Belongs to the loader, one thread.
template <class Batch>
class CopiedAhead {
  // One that is delivered and one more may be under way beside those ahead.
  static constexpr std::size_t kBesides = 2;

 public:
  CopiedAhead(c10::Device device, std::size_t most, bool pin)
      : most_(most), pins_(pin), copies_(device, most + kBesides) {}

  /// As stream.next(taken), and what follows goes on its way.
  template <class Stream>
  std::optional<MadeBatch<Batch>> next(Stream& stream, Taken& taken) {
    copies_.collect();
    if (arrivals_.empty()) arrive(stream, taken.done);
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    while (arrivals_.size() < most_ && stream.lies_ready())
      arrive(stream, arrivals_.empty() ? arrival.taken.done : arrivals_.back().taken.done);
    taken = std::move(arrival.taken);
    if (arrival.error) std::rethrow_exception(arrival.error);
    if (arrival.flight) copies_.deliver(*arrival.flight, tensors_in(std::get<Batch>(arrival.made->outcome)));
    return std::move(arrival.made);
  }

  /// A batch that was made here: copied on the same stream, and delivered.
  void copy(Batch& batch) {
    const std::vector<at::Tensor*> tensors = tensors_in(batch);
    copies_.deliver(*copies_.start(tensors), tensors);
  }

  /// Drops what was not delivered. Nothing is under way afterwards.
  void leave() {
    copies_.finish();
    arrivals_.clear();
  }

  DeviceCopies& copies() { return copies_; }
  const DeviceCopies& copies() const { return copies_; }
  /// Batches that are not delivered yet, and their bytes on the device.
  std::pair<std::size_t, std::uint64_t> ahead() {
    std::pair<std::size_t, std::uint64_t> result{0, 0};
    for (Arrival& arrival : arrivals_) {
      if (!arrival.flight) continue;
      ++result.first;
      for (const at::Tensor* tensor : tensors_in(std::get<Batch>(arrival.made->outcome)))
        if (tensor->device() == copies_.device()) result.second += tensor->nbytes();
    }
    return result;
  }

 private:
  struct Arrival {
    Taken taken;
    std::optional<MadeBatch<Batch>> made;  // nothing: an error, or the end
    std::exception_ptr error;
    std::shared_ptr<DeviceCopies::Flight> flight;
  };

  template <class Stream>
  void arrive(Stream& stream, std::int64_t done_before) {
    Arrival arrival{{done_before, {}}, {}, {}, {}};
    try {
      arrival.made = stream.next(arrival.taken);
      if (arrival.made)
        if (auto* batch = std::get_if<Batch>(&arrival.made->outcome)) arrival.flight = start(*batch);
    } catch (...) {
      arrival.error = std::current_exception();  // thrown where its batch would have come
    }
    arrivals_.push_back(std::move(arrival));
  }

  std::shared_ptr<DeviceCopies::Flight> start(Batch& batch) {
    const std::vector<at::Tensor*> tensors = tensors_in(batch);
    if (pins_)
      for (at::Tensor* tensor : tensors)
        if (can_pin_memory(*tensor)) pin_memory_(*tensor, copies_.device().type());
    return copies_.start(tensors);
  }

  const std::size_t most_;
  const bool pins_;
  std::deque<Arrival> arrivals_;
  DeviceCopies copies_;
};

}  // namespace shoal::detail
