// Pipelines of bytes and JSON texts.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {
namespace {

class BytesPlan final : public FieldPlan {
 public:
  BytesPlan(std::size_t field, std::vector<NumberedOperation> operations) : field_(field) {
    for (std::size_t at = 0; at < operations.size(); ++at) {
      BetonOperation& operation = operations[at].operation;
      const auto* decoder = std::get_if<BytesDecoder>(&operation);
      if ((decoder != nullptr) != (at == 0))
        refuse_operation(operation, "a pipeline of bytes or JSON begins with BytesDecoder, once");
      if (decoder != nullptr) {
        if (decoder->length < 0) refuse_operation(operation, "length is negative");
        length_ = decoder->length;
      } else if (works_on_batches(operation)) {
        on_batch_.push_back(std::move(operation));
      } else {
        refuse_operation(operation, "it does not work on bytes");
      }
    }
  }

  void make(const PlannedSamples& samples, const std::string& name, BetonBatch& batch) const override {
    const auto count = std::int64_t(samples.size());
    at::Tensor lengths = at::empty({count}, at::TensorOptions(at::kLong));
    auto* length = lengths.mutable_data_ptr<std::int64_t>();
    std::int64_t longest = length_;
    // Looked up once: somebody may write to the file meanwhile, and then a value has another length.
    std::vector<std::span<const std::uint8_t>> values;
    values.reserve(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      values.push_back(value_of(samples.places[i]));
      length[i] = std::int64_t(values[i].size());
      if (length_ > 0 && length[i] > length_)
        throw std::invalid_argument(fmt::format("{}: sample {}, field {:?} has {} bytes, BytesDecoder a length of {}",
                                                samples.places[i].file->path(), samples.places[i].row, name, length[i],
                                                length_));
      longest = std::max(longest, length[i]);
    }
    BatchValue value{at::empty({count, longest}, at::TensorOptions(at::kByte))};
    auto* row = value.tensor.mutable_data_ptr<std::uint8_t>();
    for (const auto& bytes : values) {
      if (!bytes.empty()) std::memcpy(row, bytes.data(), bytes.size());
      std::fill(row + bytes.size(), row + longest, std::uint8_t(0));
      row += longest;
    }
    for (const BetonOperation& operation : on_batch_) apply_to_batch(operation, value);
    batch.insert_or_assign(name, std::move(value.tensor));
    batch.insert_or_assign(lengths_of(name), std::move(lengths));
  }

  std::vector<std::string> outputs(const std::string& name) const override { return {name, lengths_of(name)}; }

  BatchOutline outline() const override {
    constexpr std::int64_t kAny = 64;
    BatchOutline outline{{at::empty({2, length_ > 0 ? length_ : kAny}, at::TensorOptions(at::kByte).device(at::kMeta))},
                         length_ > 0};
    outline_operations(on_batch_, outline);
    return outline;
  }

 private:
  static std::string lengths_of(const std::string& name) { return name + ".lengths"; }
  std::span<const std::uint8_t> value_of(const BetonPlace& place) const {
    if (place.file->fields()[field_].type == BetonType::bytes) return place.file->bytes(place.row, field_);
    const std::string_view text = place.file->json(place.row, field_);
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }

  std::size_t field_;
  std::int64_t length_ = 0;
  std::vector<BetonOperation> on_batch_;
};

}  // namespace

std::unique_ptr<const FieldPlan> plan_bytes(std::size_t field, std::vector<NumberedOperation> operations) {
  return std::make_unique<BytesPlan>(field, std::move(operations));
}

}  // namespace shoal::detail
