// Pipelines of int and float fields.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>
#include <shoal/internal/workers/beton/pipeline/mixing.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

namespace shoal::detail {
namespace {

using LabelMixing = std::variant<LabelMixup, LabelCutMix>;

class NumberPlan final : public FieldPlan {
 public:
  NumberPlan(std::size_t field, BetonType type, std::vector<NumberedOperation> operations)
      : field_(field), is_integer_(type == BetonType::integer) {
    for (std::size_t at = 0; at < operations.size(); ++at) add(std::move(operations[at].operation), at == 0);
  }

  void make(const PlannedSamples& samples, const std::string& name, BetonBatch& batch) const override {
    const auto count = std::int64_t(samples.size());
    BatchValue value;
    if (mixing_) {
      value.tensor = at::empty({count, 3}, at::TensorOptions(at::kFloat));
      mix(samples, value.tensor.mutable_data_ptr<float>());
    } else {
      value.tensor = at::empty({count, 1}, at::TensorOptions(is_integer_ ? at::kLong : at::kDouble));
      if (is_integer_)
        fill(samples, value.tensor.mutable_data_ptr<std::int64_t>());
      else
        fill(samples, value.tensor.mutable_data_ptr<double>());
    }
    for (const BetonOperation& operation : on_batch_) apply_to_batch(operation, value);
    batch.insert_or_assign(name, std::move(value.tensor));
  }

  BatchOutline outline() const override {
    const at::ScalarType type = mixing_ ? at::kFloat : is_integer_ ? at::kLong : at::kDouble;
    BatchOutline outline{{at::empty({2, mixing_ ? 3 : 1}, at::TensorOptions(type).device(at::kMeta))}};
    outline_operations(on_batch_, outline);
    return outline;
  }

 private:
  void add(BetonOperation operation, bool is_first) {
    const bool is_decoder =
        std::holds_alternative<IntDecoder>(operation) || std::holds_alternative<FloatDecoder>(operation);
    if (is_first != is_decoder)
      refuse_operation(operation, "a pipeline of numbers begins with IntDecoder or FloatDecoder, once");
    if (is_decoder) {
      if (is_integer_ != std::holds_alternative<IntDecoder>(operation))
        refuse_operation(operation, "the field is of the other kind");
      return;
    }
    if (auto* replace = std::get_if<ReplaceLabel>(&operation)) {
      if (!is_integer_ || mixing_ || !on_batch_.empty())
        refuse_operation(operation, "it takes the values of an int field, behind IntDecoder");
      std::ranges::sort(replace->indices);
      replaced_.push_back(std::move(*replace));
      return;
    }
    const auto mix_by = [&](auto& mixing) {
      if (mixing_ || !on_batch_.empty()) refuse_operation(operation, "it takes the values as they are decoded");
      (void)mixup_share(mixing.alpha, {});  // refuses alpha
      mixing_ = mixing;
    };
    if (auto* mixup = std::get_if<LabelMixup>(&operation)) return mix_by(*mixup);
    if (auto* cut_mix = std::get_if<LabelCutMix>(&operation)) {
      cut_mix->size = crop_size("LabelCutMix", cut_mix->size);
      return mix_by(*cut_mix);
    }
    if (!works_on_batches(operation)) refuse_operation(operation, "it does not work on numbers");
    on_batch_.push_back(std::move(operation));
  }

  template <class Number>
  Number number_of(const PlannedSamples& samples, std::size_t i) const {
    const BetonPlace& place = samples.places[i];
    if constexpr (std::same_as<Number, std::int64_t>) {
      std::int64_t value = place.file->integer(place.row, field_);
      for (const ReplaceLabel& replace : replaced_)
        if (std::ranges::binary_search(replace.indices, std::int64_t(samples.keys[i].index))) value = replace.new_label;
      return value;
    } else {
      return place.file->real(place.row, field_);
    }
  }
  template <class Number>
  void fill(const PlannedSamples& samples, Number* out) const {
    for (std::size_t i = 0; i < samples.size(); ++i) out[i] = number_of<Number>(samples, i);
  }

  void mix(const PlannedSamples& samples, float* out) const {
    const auto number = [&](std::size_t i) {
      return is_integer_ ? float(number_of<std::int64_t>(samples, i)) : float(number_of<double>(samples, i));
    };
    for (std::size_t i = 0; i < samples.size(); ++i, out += 3) {
      out[0] = number(i);
      out[1] = number(i == 0 ? samples.size() - 1 : i - 1);
      out[2] = std::visit(
          [&]<class T>(const T& mixing) {
            const SampleKey& key = mixing.same_lambda ? samples.keys.back() : samples.keys[i];
            if constexpr (std::same_as<T, LabelMixup>)
              return float(mixup_share(mixing.alpha, key));
            else
              return float(cut_box(mixing.alpha, mixing.size, key).own_share);
          },
          *mixing_);
    }
  }

  std::size_t field_;
  bool is_integer_;
  std::vector<ReplaceLabel> replaced_;
  std::optional<LabelMixing> mixing_;
  std::vector<BetonOperation> on_batch_;
};

}  // namespace

std::unique_ptr<const FieldPlan> plan_numbers(std::size_t field, BetonType type,
                                              std::vector<NumberedOperation> operations) {
  return std::make_unique<NumberPlan>(field, type, std::move(operations));
}

}  // namespace shoal::detail
