// Sequences of different lengths in one tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/data/collate.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// Padded sequences and their lengths without padding. A plain value; crosses as its two tensors.
struct PaddedSequences {
  at::Tensor data;     ///< [sequences, longest, ...], or [longest, sequences, ...] without batch_first
  at::Tensor lengths;  ///< int64 [sequences]
};

/// Has the names and defaults of torch.nn.utils.rnn.pad_sequence, except that batch_first is true.
struct PadOptions {
  bool batch_first = true;             ///< [sequences, longest, ...], and not [longest, sequences, ...]
  double padding_value = 0;            ///< what stands where a sequence has ended
  std::string padding_side = "right";  ///< or "left"
  std::int64_t multiple_of = 1;        ///< lengths are rounded up to a multiple of it: fewer different shapes for a GPU
};

/// Makes one tensor of all sequences, each [length, ...]. Throws std::invalid_argument, which shows the shapes, unless
/// the sequences are of one type and equal but for their first dimension.
PaddedSequences pad_sequence(std::span<const at::Tensor> sequences, const PadOptions& options = {});

/// A sample, or a part of one, whose first dimension differs from sample to sample. Its batch is PaddedSequences,
/// padded with the first sample's `padding_value`. For other options write a collate function that calls pad_sequence.
struct Sequence {
  at::Tensor values;         ///< [length, ...]
  double padding_value = 0;  ///< what stands where it has ended
};

template <>
struct Collator<Sequence> {
  using Batch = PaddedSequences;
  static Batch collate(std::size_t count, const auto& sample, const std::string& /*where*/) {
    std::vector<at::Tensor> sequences;
    sequences.reserve(count);
    for (std::size_t i = 0; i < count; ++i) sequences.push_back(sample(i).values);
    return pad_sequence(sequences, {.padding_value = sample(0).padding_value});
  }
};

}  // namespace shoal
