// The MNIST family of data sets (MNIST, Fashion-MNIST, ...) from their idx files, gzipped or not.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace shoal {

/// Which of the two parts of a data set: its files are called train-... and t10k-...
enum class MnistSplit : std::uint8_t { train, test };

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Grey images and their classes. An example is {data: uint8 [28, 28], target: int64 []}; a batch has one more
/// dimension in front. The pixels stay bytes until they are where they are computed on. Plain data: share its tensors
/// before you give it to other processes, and all of them read the same memory.
struct MnistDataset {
  at::Tensor images;  ///< uint8 [n, 28, 28]
  at::Tensor labels;  ///< int64 [n]

  std::int64_t size() const { return labels.size(0); }  ///< pictures
  /// The example, as views of the data set's memory.
  Example get(std::int64_t index) const;
  /// Copies these samples.
  Example get_batch(std::span<const std::int64_t> indices) const;
};

/// Reads train-images-idx3-ubyte and train-labels-idx1-ubyte (t10k-... for the test split), each with or without .gz,
/// from `directory`. Throws DatasetError if one is missing, cut short or of another format, or if the two do not match.
MnistDataset load_mnist(const std::filesystem::path& directory, MnistSplit split);

}  // namespace shoal
