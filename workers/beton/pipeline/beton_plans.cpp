#include <shoal/internal/workers/beton/pipeline/beton_plans.h>

#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shoal {
namespace detail {
namespace {

struct PlannedField {
  std::size_t field;
  std::string name;
  std::unique_ptr<const FieldPlan> plan;  // nothing: as it is
};

}  // namespace

struct BetonPlans::State {
  BetonPipelines pipelines;
  std::once_flag planned;
  std::vector<PlannedField> fields;
};

namespace {

std::size_t field_of(const BetonFile& file, const std::string& output, const std::string& field) {
  try {
    return file.field(field);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("pipeline of {:?}: {}", output, error.what()));
  }
}

/// Each value of a batch has a name of its own.
void check_outputs(const std::vector<PlannedField>& fields, const BetonFile& file) {
  std::set<std::string> seen;
  for (const PlannedField& field : fields)
    for (const std::string& name : field.plan ? field.plan->outputs(field.name) : std::vector{field.name})
      if (!seen.insert(name).second)
        throw std::invalid_argument(
            fmt::format("{}: two values of a batch would be named {:?}: give one another name by a PipelineSpec, or "
                        "leave it out by an empty pipeline",
                        file.path(), name));
}

}  // namespace

/// The pipeline with the field's own name.
BetonPipelines::const_iterator BetonPlans::pipeline_of_field(const BetonFile& file, std::size_t field) const {
  auto found = pipelines().end();
  for (auto at = pipelines().begin(); at != pipelines().end(); ++at) {
    if (source_of(at->second) != nullptr || field_of(file, at->first, at->first) != field) continue;
    if (found != pipelines().end())
      throw std::invalid_argument(fmt::format("two pipelines of field {:?}", file.fields()[field].name));
    found = at;
  }
  return found;
}

BetonPlans::BetonPlans(BetonPipelines pipelines) {
  if (pipelines.empty()) return;
  state_ = std::make_shared<State>();
  state_->pipelines = std::move(pipelines);
}

const BetonPipelines& BetonPlans::pipelines() const {
  static const BetonPipelines none;
  return state_ ? state_->pipelines : none;
}

void BetonPlans::plan(const BetonFile& file) const {
  std::call_once(state_->planned, [&] {
    std::vector<PlannedField> fields;
    const auto described = file.fields();
    for (std::size_t f = 0; f < described.size(); ++f) {
      const auto own = pipeline_of_field(file, f);
      if (own == state_->pipelines.end()) {
        if (!state_->pipelines.contains(described[f].name)) fields.push_back({f, described[f].name, nullptr});
      } else if (!own->second.empty()) {
        fields.push_back({f, own->first, plan_field(file, f, own->second, described[f].name)});
      }
    }
    for (const auto& [output, pipeline] : state_->pipelines) {
      const std::string* source = source_of(pipeline);
      const std::size_t f = field_of(file, output, source == nullptr ? output : *source);
      if (source == nullptr) continue;
      const BetonPipeline rest(pipeline.begin() + 1, pipeline.end());
      fields.push_back({f, output, rest.empty() ? nullptr : plan_field(file, f, rest, output)});
    }
    check_outputs(fields, file);
    state_->fields = std::move(fields);
  });
}

NamedTensors BetonPlans::make(std::span<const BetonPlace> places, std::span<const std::int64_t> indices) const {
  if (places.empty()) throw std::invalid_argument("BetonDataset: no indices; a batch has at least one sample");
  plan(*places[0].file);
  thread_local std::vector<SampleKey> keys;
  keys.clear();
  for (const std::int64_t index : indices) keys.push_back(sample_key(index));
  NamedTensors batch;
  for (const PlannedField& field : state_->fields) {
    if (field.plan)
      field.plan->make({places, keys}, field.name, batch);
    else
      batch.insert_or_assign(field.name, decode_field(places, field.field));
  }
  return batch;
}

}  // namespace detail

void Codec<detail::BetonPlans>::encode(Encoder& encoder, const detail::BetonPlans& plans) {
  BetonPipelines here;
  for (const auto& [name, pipeline] : plans.pipelines()) {
    const auto end = pipeline.begin() + std::ptrdiff_t(detail::loop_begins(pipeline));
    here.emplace(name, BetonPipeline(pipeline.begin(), end));
  }
  shoal::encode(encoder, here);
}

detail::BetonPlans Codec<detail::BetonPlans>::decode(Decoder& decoder) {
  return detail::BetonPlans(shoal::decode<BetonPipelines>(decoder));
}

}  // namespace shoal
