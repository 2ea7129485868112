#include <shoal/workers/data/pad_sequence.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {
namespace {

void check(std::span<const at::Tensor> sequences, const PadOptions& options) {
  if (sequences.empty()) throw std::invalid_argument("pad_sequence: no sequences; there has to be at least one");
  if (options.padding_side != "right" && options.padding_side != "left") {
    throw std::invalid_argument(
        fmt::format("pad_sequence: padding_side is \"{}\"; it is \"right\" or \"left\"", options.padding_side));
  }
  if (options.multiple_of < 1) {
    throw std::invalid_argument(fmt::format("pad_sequence: multiple_of is {}; at least 1", options.multiple_of));
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const at::Tensor& sequence = sequences[i];
    if (!sequence.defined() || sequence.dim() == 0) {
      throw std::invalid_argument(
          fmt::format("pad_sequence: sequence {} has no length; it is undefined or has no dimension", i));
    }
    if (sequence.sizes().slice(1) != sequences[0].sizes().slice(1) ||
        sequence.scalar_type() != sequences[0].scalar_type()) {
      throw std::invalid_argument(fmt::format(
          "pad_sequence: sequence 0 is {} {}, sequence {} is {} {}; they may differ in their first dimension alone",
          c10::toString(sequences[0].scalar_type()), sequences[0].sizes().vec(), i,
          c10::toString(sequence.scalar_type()), sequence.sizes().vec()));
    }
  }
}

}  // namespace

PaddedSequences pad_sequence(std::span<const at::Tensor> sequences, const PadOptions& options) {
  check(sequences, options);
  const auto count = std::int64_t(sequences.size());
  PaddedSequences padded;
  padded.lengths = at::empty({count}, at::TensorOptions(at::kLong));
  auto* lengths = padded.lengths.mutable_data_ptr<std::int64_t>();
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) longest = std::max(longest, lengths[i] = sequences[i].size(0));
  longest = (longest + options.multiple_of - 1) / options.multiple_of * options.multiple_of;

  std::vector<std::int64_t> sizes = sequences[0].sizes().vec();
  sizes[0] = longest;
  sizes.insert(sizes.begin() + (options.batch_first ? 0 : 1), count);
  padded.data = at::full(sizes, options.padding_value, sequences[0].options());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t start = options.padding_side == "left" ? longest - lengths[i] : 0;
    padded.data.select(options.batch_first ? 0 : 1, std::int64_t(i)).narrow(0, start, lengths[i]).copy_(sequences[i]);
  }
  return padded;
}

}  // namespace shoal
