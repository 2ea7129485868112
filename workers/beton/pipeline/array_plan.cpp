// Pipelines of arrays, masks among them.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

class ArrayPlan final : public FieldPlan {
 public:
  ArrayPlan(const BetonFile& file, std::size_t field, std::vector<NumberedOperation> operations)
      : field_(field), described_(file.fields()[field]), shape_(shape_of_value({&file, 0}, field)) {
    for (std::size_t at = 0; at < operations.size(); ++at) {
      NumberedOperation& operation = operations[at];
      if (std::holds_alternative<NDArrayDecoder>(operation.operation) != (at == 0))
        refuse_operation(operation.operation, "a pipeline of arrays begins with NDArrayDecoder, once");
      if (at == 0) continue;
      if (works_on_batches(operation.operation)) {
        on_batch_.push_back(std::move(operation.operation));
      } else if (can_move(operation.operation) && on_batch_.empty()) {
        moves_.push_back(std::move(operation));
      } else {
        refuse_operation(operation.operation, on_batch_.empty()
                                                  ? "it does not work on arrays"
                                                  : "transforms of masks come right behind NDArrayDecoder");
      }
    }
    if (!moves_.empty()) check_is_mask();
  }

  void make(const PlannedSamples& samples, const std::string& name, BetonBatch& batch) const override {
    BatchValue value{moves_.empty() ? arrays(samples) : masks(samples)};
    for (const BetonOperation& operation : on_batch_) apply_to_batch(operation, value);
    batch.insert_or_assign(name, std::move(value.tensor));
  }

  BatchOutline outline() const override {
    BatchOutline outline{{at::empty(batch_sizes(2), at::TensorOptions(shape_.type).device(at::kMeta))}, moves_.empty()};
    outline_operations(on_batch_, outline);
    return outline;
  }

 private:
  static bool can_move(const BetonOperation& operation) {
    return std::visit([]<class T>(const T&) { return ByteTransform<T> && MaskTransform<T>; }, operation);
  }

  void check_is_mask() const {
    if (shape_.sizes.size() != 2 && shape_.sizes.size() != 3)
      refuse_operation(
          moves_.front().operation,
          fmt::format("the field has {} dimensions; a mask is [height, width] or [channels, height, width]",
                      shape_.sizes.size()));
    if (!MaskSources::can_copy(shape_.type))
      refuse_operation(moves_.front().operation,
                       fmt::format("no mask has numbers of type {}", c10::toString(shape_.type)));
  }

  std::vector<std::int64_t> batch_sizes(std::size_t samples) const {
    std::vector<std::int64_t> sizes = shape_.sizes;
    sizes.insert(sizes.begin(), std::int64_t(samples));
    return sizes;
  }

  at::Tensor arrays(const PlannedSamples& samples) const {
    at::Tensor rows = at::empty(batch_sizes(samples.size()), at::TensorOptions(shape_.type));
    auto* to = static_cast<std::uint8_t*>(rows.mutable_data_ptr());
    const std::size_t stride = rows.nbytes() / samples.size();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      check_shape(samples.places[i]);
      decode_value(samples.places[i], field_, {to + i * stride, stride});
    }
    return rows;
  }

  at::Tensor masks(const PlannedSamples& samples) const {
    const at::Tensor decoded = at::empty(shape_.sizes, at::TensorOptions(shape_.type));
    const ImageShape picture{3, decoded.size(-2), decoded.size(-1)};
    const at::Tensor planes = mask_planes(decoded, picture);
    thread_local MaskSources sources;
    at::Tensor rows;
    std::size_t stride = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      check_shape(samples.places[i]);
      decode_value(samples.places[i], field_,
                   {static_cast<std::uint8_t*>(decoded.mutable_data_ptr()), decoded.nbytes()});
      sources.start({picture.height, picture.width});
      for (const NumberedOperation& move : moves_) move_by(move, samples.keys[i], sources);
      const ImageSize size = sources.size();
      if (i == 0) {
        rows = at::empty({std::int64_t(samples.size()), planes.size(0), size.height, size.width}, planes.options());
        stride = rows.nbytes() / samples.size();
      }
      if (rows.size(2) != size.height || rows.size(3) != size.width)
        throw std::invalid_argument(
            fmt::format("{}: sample {}: its mask is {} x {} after its transforms, the first one "
                        "of its batch {} x {}",
                        samples.places[i].file->path(), samples.places[i].row, size.height, size.width, rows.size(2),
                        rows.size(3)));
      sources.copy(planes, static_cast<std::byte*>(rows.mutable_data_ptr()) + i * stride);
    }
    return shape_.sizes.size() == 2 ? rows.squeeze(1) : rows;
  }

  static void move_by(const NumberedOperation& move, const SampleKey& key, MaskSources& sources) {
    std::visit(
        [&]<class T>(const T& its) {
          const ImageShape shape{3, sources.size().height, sources.size().width};
          if constexpr (requires { its.move(shape, Draws{key, move.number}, sources); })
            its.move(shape, Draws{key, move.number}, sources);
        },
        move.operation);
  }

  /// An array's shape is its field's. Without a ValueShape, which is memory for each sample.
  void check_shape(const BetonPlace& place) const {
    const BetonField& own = place.file->fields()[field_];
    if (own.shape != described_.shape || own.dtype != described_.dtype)
      throw std::invalid_argument(
          fmt::format("{}: sample {}, field {:?} has another shape or type than in the file of which its pipeline was "
                      "planned",
                      place.file->path(), place.row, own.name));
  }

  std::size_t field_;
  BetonField described_;
  ValueShape shape_;
  std::vector<NumberedOperation> moves_;
  std::vector<BetonOperation> on_batch_;
};

}  // namespace

std::unique_ptr<const FieldPlan> plan_arrays(const BetonFile& file, std::size_t field,
                                             std::vector<NumberedOperation> operations) {
  return std::make_unique<ArrayPlan>(file, field, std::move(operations));
}

}  // namespace shoal::detail
