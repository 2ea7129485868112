// Decoded pictures, kept for all processes.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/transforms/transform.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace shoal {

/// A place in shared memory for each of n pictures of one shape; whoever decodes a picture first fills its place. A
/// plain aggregate: copies refer to the same memory, also in other processes. Nobody ever waits: a process that finds a
/// place being filled has decoded the picture anyway. If a process dies while it fills a place, the next one that comes
/// fills it again. Threads and processes: any.
struct DecodedCache {
  at::Tensor pictures;  // uint8 [n, channels, height, width]
  at::Tensor states;    // int32 [n]: kEmpty, kFilled, or the ProcessTag of the one that fills it

  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kFilled = ~0U;

  /// Makes an empty cache. Throws OutOfSharedMemory at once, because it asks the budget for the whole of it.
  static DecodedCache of(std::int64_t pictures, const ImageShape& shape);

  /// A view of the picture, or nothing.
  std::optional<at::Tensor> find(std::int64_t index) const;
  /// Puts a picture in its place, unless another one does.
  void keep(std::int64_t index, const at::Tensor& picture) const;
  /// How many places are filled.
  std::int64_t filled() const;

 private:
  std::atomic_ref<std::uint32_t> state(std::int64_t index) const;
};

}  // namespace shoal
