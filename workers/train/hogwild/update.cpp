#include <shoal/internal/workers/train/hogwild/update.h>

#include <ATen/Parallel.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/prefetch.h>
#include <shoal/internal/workers/train/hogwild/fused.h>

#include <algorithm>
#include <optional>
#include <span>

namespace shoal::hogwild {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements of a thread, as libtorch has it
// Rows of a sparse gradient are far from each other, so no processor foresees the next one; further on in a row it does. So
// many bytes of the next rows are on their way at once as a core has places for, and as its first cache has room for.
constexpr std::int64_t kBytesAhead = 8192, kMostPrefetched = 1024;  // the latter of a row
constexpr std::int64_t kLeastRowsAhead = 4, kMostRowsAhead = 16;

/// A stripe is this process's until the object goes. If its last holder died with it, an update is half done, as it is
/// without locks.
class StripeLock {
 public:
  explicit StripeLock(StripeRecord& stripe) : lock_(stripe.lock) {
    lock_.lock_until(Deadline::never());
    SHOAL_KILL_POINT("hogwild.stripe.locked");
  }
  StripeLock(const StripeLock&) = delete;
  StripeLock& operator=(const StripeLock&) = delete;
  ~StripeLock() {
    SHOAL_KILL_POINT("hogwild.stripe.updated");
    lock_.unlock();
  }

 private:
  LockWord& lock_;
};

/// One parameter's memory.
class Memory {
 public:
  explicit Memory(const Parameter& parameter)
      : element_(std::int64_t(parameter.flat.element_size())), parameter_(start_of(parameter.flat)) {
    for (std::size_t place = 0; place < kMostKept; ++place)
      kept_[place] = parameter.kept[place].defined() ? start_of(parameter.kept[place]) : nullptr;
  }
  std::int64_t element_size() const { return element_; }

  Span span(std::int64_t from, std::int64_t size, const std::byte* gradient) const {
    Span result{.parameter = parameter_ + from * element_, .gradient = gradient, .kept = {}, .size = size};
    for (std::size_t place = 0; place < kMostKept; ++place)
      result.kept[place] = kept_[place] ? kept_[place] + from * element_ : nullptr;
    return result;
  }

  /// How many rows of this many elements are worth being asked for while one is updated.
  std::size_t rows_ahead(std::int64_t row) const {
    const std::int64_t tensors =
        1 + std::ranges::count_if(kept_, [](const std::byte* kept) { return kept != nullptr; });
    const std::int64_t bytes = std::max<std::int64_t>(std::min(row * element_, kMostPrefetched) * tensors, 1);
    return std::size_t(std::clamp(kBytesAhead / bytes, kLeastRowsAhead, kMostRowsAhead));
  }

  /// Brings the first kMostPrefetched bytes of elements [from, from + size) into the caches, to be written.
  void prefetch(std::int64_t from, std::int64_t size) const {
    constexpr std::int64_t kLine = 64;
    const std::int64_t start = from * element_, end = start + std::min(size * element_, kMostPrefetched);
    for (std::int64_t at = start; at < end; at += kLine) {
      prefetch_to_write(parameter_ + at);
      for (const std::byte* kept : kept_)
        if (kept) prefetch_to_write(kept + at);
    }
  }

 private:
  static std::byte* start_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

  std::int64_t element_;
  std::byte* parameter_;
  std::array<std::byte*, kMostKept> kept_{};
};

const std::byte* start_of(const at::Tensor& tensor) { return static_cast<const std::byte*>(tensor.const_data_ptr()); }

/// One process's step of one parameter.
struct Step {
  const Optimizer::State& state;
  const Parameter& parameter;
  const Gradient& gradient;
  std::int64_t number;  // from 1
  double lr;

  bool is_striped() const { return Locking(state.layout->locking) == Locking::striped; }
  const Numbers& numbers() const { return state.numbers(parameter); }
  SpanUpdate span_update() const { return {state.rule(), numbers(), lr, number, parameter.flat.scalar_type()}; }
  bool is_fused() const { return hogwild::is_fused(state.rule(), numbers(), parameter.flat.scalar_type()); }
  StripeRecord& stripe_of(std::int64_t element) const {
    return state.layout->stripe(parameter.striping.first + std::size_t(element / parameter.striping.elements));
  }
};

void update_rows(const Step& step) {
  const SparseRows& gradient = *step.gradient.rows;
  const std::span<const std::int64_t> rows = gradient.numbers();
  const std::int64_t row = gradient.row_size();
  const Memory memory(step.parameter);
  const SpanUpdate update = step.span_update();
  const std::size_t ahead = memory.rows_ahead(row);
  const std::int64_t rows_of_stripe = step.parameter.striping.elements / row;
  for (std::size_t next = 0; next < rows.size();) {
    std::optional<StripeLock> lock;
    std::size_t end = rows.size();
    if (step.is_striped()) {
      lock.emplace(step.stripe_of(rows[next] * row));
      const std::int64_t of_next_stripe = (rows[next] / rows_of_stripe + 1) * rows_of_stripe;
      end =
          std::size_t(std::lower_bound(rows.begin() + std::ptrdiff_t(next), rows.end(), of_next_stripe) - rows.begin());
    }
    for (; next < end; ++next) {
      if (next + ahead < rows.size()) {
        const std::int64_t element = rows[next + ahead] * row;
        memory.prefetch(element, row);
        if (step.is_striped()) prefetch_to_write(&step.stripe_of(element));  // the lock
      }
      update(memory.span(rows[next] * row, row, gradient.values(next)));
      SHOAL_KILL_POINT("hogwild.row.updated");
    }
  }
}

/// Elements [from, from + size), of a parameter that no fused kernel takes.
void update_span(const Step& step, std::int64_t from, std::int64_t size) {
  const Memory memory(step.parameter);
  const SpanUpdate update = step.span_update();
  const std::byte* gradient = start_of(step.gradient.flat);
  at::parallel_for(from, from + size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    update(memory.span(begin, end - begin, gradient + begin * memory.element_size()));
  });
}

void update_striped(const Step& step) {
  const Parameter& parameter = step.parameter;
  const std::int64_t all = parameter.flat.numel();
  for (std::int64_t from = 0; from < all; from += parameter.striping.elements) {
    const std::int64_t size = std::min(parameter.striping.elements, all - from);
    if (!step.is_fused()) {
      const StripeLock lock(step.stripe_of(from));
      update_span(step, from, size);
      continue;
    }
    std::array<at::Tensor, kMostKept> kept;
    for (std::size_t place = 0; place < kMostKept; ++place)
      if (parameter.kept[place].defined()) kept[place] = parameter.kept[place].narrow(0, from, size);
    FusedBatch one(step.state.rule(), step.numbers(), step.lr);
    one.add(parameter.flat.narrow(0, from, size), step.gradient.flat.narrow(0, from, size), kept, step.number);
    const StripeLock lock(step.stripe_of(from));
    one.run();
  }
}

}  // namespace

void update(Optimizer::State& state, const std::vector<Gradient>& gradients) {
  for (auto gradient = gradients.begin(); gradient != gradients.end();) {
    const std::uint32_t group = state.parameters[gradient->parameter].group;
    const double lr = state.lr(state.parameters[gradient->parameter]);  // one for the group's whole step
    FusedBatch batch(state.rule(), state.layout->group(group).numbers, lr);
    for (; gradient != gradients.end() && state.parameters[gradient->parameter].group == group; ++gradient) {
      const Parameter& parameter = state.parameters[gradient->parameter];
      // relaxed: a number of its own for each step of the parameter, and nothing else.
      const std::int64_t number = state.layout->count(gradient->parameter).fetch_add(1, std::memory_order_relaxed) + 1;
      const Step step{.state = state, .parameter = parameter, .gradient = *gradient, .number = number, .lr = lr};
      if (gradient->is_sparse())
        update_rows(step);
      else if (step.is_striped())
        update_striped(step);
      else if (step.is_fused())
        batch.add(parameter.flat, gradient->flat, parameter.kept, number);
      else
        update_span(step, 0, parameter.flat.numel());
      // For autograd, which would otherwise go back through values that are not there any more.
      parameter.tensor.unsafeGetTensorImpl()->bump_version();
      SHOAL_KILL_POINT("hogwild.parameter.updated");
    }
    batch.run();
  }
}

}  // namespace shoal::hogwild
