#include <shoal/internal/workers/beton/pipeline/field_plan.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/names.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

// FNV-1a: the same on every machine, in every version.
std::uint64_t hash_of(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return (hash ^ 0xFFU) * 0x100000001B3;  // no character of UTF-8: "a", "bc" is not "ab", "c"
}

// The name under which an operation draws.
std::string_view drawing_name(const BetonOperation& operation) {
  if (std::holds_alternative<RandomResizedCropRGBImageDecoder>(operation))
    return config::type_name_of<RandomResizedCrop>();
  return name_of(operation);
}

std::unique_ptr<const FieldPlan> plan_operations(const BetonFile& file, std::size_t field,
                                                 std::vector<NumberedOperation> operations) {
  const BetonType type = file.fields()[field].type;
  switch (type) {
    case BetonType::rgb_image:
      return plan_pictures(field, std::move(operations));
    case BetonType::integer:
    case BetonType::real:
      return plan_numbers(field, type, std::move(operations));
    case BetonType::ndarray:
    case BetonType::tensor:
      return plan_arrays(file, field, std::move(operations));
    case BetonType::bytes:
    case BetonType::json:
      return plan_bytes(field, std::move(operations));
    case BetonType::custom:
      break;
  }
  throw std::invalid_argument("there are no decoders for custom fields; leave it without a pipeline");
}

}  // namespace

std::uint64_t draw_number(std::string_view group, std::string_view name, std::uint64_t n) {
  return inner_operation(hash_of(hash_of(0xCBF29CE484222325, group), name), n);
}

const std::string* source_of(const BetonPipeline& pipeline) {
  const auto* spec = pipeline.empty() ? nullptr : std::get_if<PipelineSpec>(&pipeline.front());
  return spec == nullptr ? nullptr : &spec->source;
}

std::vector<NumberedOperation> numbered_operations(std::string_view own_group, const BetonPipeline& pipeline) {
  std::vector<NumberedOperation> operations;
  std::map<std::string_view, std::uint64_t> seen;
  std::string group(own_group);
  const std::size_t end = loop_begins(pipeline);
  for (std::size_t at = 0; at < end; ++at) {
    if (const auto* named = std::get_if<DrawGroup>(&pipeline[at])) {
      if (at > 0) refuse_operation(*named, "it stands first in its pipeline");
      group = named->name;
      continue;
    }
    if (std::holds_alternative<PipelineSpec>(pipeline[at]))
      refuse_operation(pipeline[at], "it stands before all others in its pipeline, once");
    // It does nothing: neither does it end a picture's one pass, nor keep transforms from following it.
    if (std::holds_alternative<ToTensor>(pipeline[at]) && !operations.empty()) continue;
    const std::string_view name = drawing_name(pipeline[at]);
    operations.push_back({pipeline[at], draw_number(group, name, seen[name]++)});
  }
  return operations;
}

void refuse_operation(const BetonOperation& operation, std::string_view why) {
  throw std::invalid_argument(fmt::format("{}: {}", name_of(operation), why));
}

std::unique_ptr<const FieldPlan> plan_field(const BetonFile& file, std::size_t field, const BetonPipeline& pipeline,
                                            std::string_view group) {
  const BetonField& described = file.fields()[field];
  try {
    std::vector<NumberedOperation> operations = numbered_operations(group, pipeline);
    if (operations.empty()) throw std::invalid_argument("it begins with a decoder");
    std::unique_ptr<const FieldPlan> plan = plan_operations(file, field, std::move(operations));
    // What works in the loop's process, too, as far as it is known; of the rest LoopPart says that it is none of it.
    BatchOutline outline = plan->outline();
    const auto begins = pipeline.begin() + std::ptrdiff_t(loop_begins(pipeline));
    const auto ends = std::find_if_not(begins, pipeline.end(), works_on_batches);
    outline_operations({begins, ends}, outline);
    return plan;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        fmt::format("pipeline of field {:?}, {}: {}", described.name, name_of(described.type), error.what()));
  }
}

}  // namespace shoal::detail
