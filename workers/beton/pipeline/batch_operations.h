// Operations on a whole batch's tensor: behind ToDevice, and what does not change single samples.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/beton/beton_operations.h>

#include <cstddef>
#include <span>

namespace shoal::detail {

at::ScalarType type_of(BetonNumber number);

/// A batch's tensor on its way through operations.
struct BatchValue {
  at::Tensor tensor;
  bool channels_first = false;  // pictures are [n, 3, h, w]
};
/// Applies one operation. Throws std::invalid_argument for one that works on samples, and for ToDevice.
void apply_to_batch(const BetonOperation& operation, BatchValue& value);

/// A batch's tensor before there is one: of its type and shape, without memory (on torch's meta device).
struct BatchOutline {
  BatchValue value;
  bool has_sizes = true;  // false: what a sample's dimensions measure is known with the first batch
};
/// Applies operations to an outline, as far as it goes: behind a ModuleWrapper nothing is known. Throws
/// std::invalid_argument, which names the operation, for one that cannot be applied to such a batch.
void outline_operations(std::span<const BetonOperation> operations, BatchOutline& outline);

/// Throws std::invalid_argument for means, deviations or a type that no NormalizeImage has.
void check_normalize(const NormalizeImage& normalize);

/// Whether a batch's operation can be applied so: decoders, transforms of bytes and mixing cannot.
bool works_on_batches(const BetonOperation& operation);

/// The place of the first operation that works in the loop's process: ToDevice or ModuleWrapper; size() if there is
/// none.
std::size_t loop_begins(const BetonPipeline& pipeline);

/// Whether ToTorchImage stands before that place.
bool is_torch_image(const BetonPipeline& pipeline, std::size_t before);

}  // namespace shoal::detail
