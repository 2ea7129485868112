// A field's pipeline, made ready to be run.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/workers/beton/beton_field.h>
#include <shoal/workers/beton/beton_operations.h>
#include <shoal/workers/data/named_tensors.h>
#include <shoal/workers/data/sample_random.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

using BetonBatch = NamedTensors;

/// A batch's samples: where they lie, and what their draws follow from.
struct PlannedSamples {
  std::span<const BetonPlace> places;
  std::span<const SampleKey> keys;
  std::size_t size() const { return places.size(); }
};

/// What a pipeline does in the process that makes batches. Made once in each process; without state, threads: any.
class FieldPlan {
 public:
  FieldPlan() = default;
  FieldPlan(const FieldPlan&) = delete;
  FieldPlan& operator=(const FieldPlan&) = delete;
  virtual ~FieldPlan() = default;

  /// Adds the field's tensors for these samples. Throws DatasetError for damaged ones, std::invalid_argument for those
  /// that the pipeline cannot take.
  virtual void make(const PlannedSamples& samples, const std::string& name, BetonBatch& batch) const = 0;

  /// The names of the tensors that make() adds under this one.
  virtual std::vector<std::string> outputs(const std::string& name) const { return {name}; }

  /// A batch as make() would add it. Throws std::invalid_argument if an operation cannot be applied to such batches.
  virtual BatchOutline outline() const = 0;
};

/// An operation with the number that its draws follow from.
struct NumberedOperation {
  BetonOperation operation;
  std::uint64_t number;
};

/// The n-th operation of a name in a group of pipelines.
std::uint64_t draw_number(std::string_view group, std::string_view name, std::uint64_t n);

/// The operations of a pipeline up to those that work in the loop's process, without its DrawGroup and what does
/// nothing. `own_group`: of its draws, if it has none.
std::vector<NumberedOperation> numbered_operations(std::string_view own_group, const BetonPipeline& pipeline);

/// The field that a pipeline's PipelineSpec names; nothing if it has none.
const std::string* source_of(const BetonPipeline& pipeline);

/// Plans a field's pipeline, without its PipelineSpec. Throws std::invalid_argument, which names field and operation, for
/// one that cannot be.
std::unique_ptr<const FieldPlan> plan_field(const BetonFile& file, std::size_t field, const BetonPipeline& pipeline,
                                            std::string_view group);

// One kind of field each.
std::unique_ptr<const FieldPlan> plan_pictures(std::size_t field, std::vector<NumberedOperation> operations);
std::unique_ptr<const FieldPlan> plan_numbers(std::size_t field, BetonType type,
                                              std::vector<NumberedOperation> operations);
std::unique_ptr<const FieldPlan> plan_arrays(const BetonFile& file, std::size_t field,
                                             std::vector<NumberedOperation> operations);
std::unique_ptr<const FieldPlan> plan_bytes(std::size_t field, std::vector<NumberedOperation> operations);

/// Throws std::invalid_argument: the operation has no place there.
[[noreturn]] void refuse_operation(const BetonOperation& operation, std::string_view why);

}  // namespace shoal::detail
