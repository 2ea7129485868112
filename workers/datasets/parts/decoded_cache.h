// Decoded pictures, kept for all processes.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/transforms/transform.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace shoal {

/// A place for each of n pictures of one shape, filled by whoever decodes it first, in shared memory. A plain
/// aggregate: a copy is the same memory, also in other processes. Nobody ever waits: who finds a place being filled has
/// decoded the picture anyway. A process that dies while it fills one is noticed by the next that comes, which fills it
/// again. Threads and processes: any.
struct DecodedCache {
  at::Tensor pictures;  // uint8 [n, channels, height, width]
  at::Tensor states;    // int32 [n]: kEmpty, kFilled, or the ProcessTag of the one that fills it

  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kFilled = ~0U;

  /// All empty. Throws OutOfSharedMemory, at once: the budget is asked for the whole of it.
  static DecodedCache of(std::int64_t pictures, const ImageShape& shape);

  /// A view of the picture, or nothing.
  [[nodiscard]] std::optional<at::Tensor> find(std::int64_t index) const;
  /// Puts a picture in its place, unless another one does.
  void keep(std::int64_t index, const at::Tensor& picture) const;
  /// How many places are filled.
  [[nodiscard]] std::int64_t filled() const;

 private:
  [[nodiscard]] std::atomic_ref<std::uint32_t> state(std::int64_t index) const;
};

}  // namespace shoal
