// A text as numbers, and as a data set.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/data/dataset.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

/// A text whose characters are bytes.
struct Text {
  at::Tensor characters;   // uint8 [n]: places in the vocabulary; in shared memory
  std::string vocabulary;  // all characters that occur, in order

  /// The places of these characters; those that do not occur in the text are left out. int64 [n].
  at::Tensor encode(const std::string& said) const;
  std::string decode(const at::Tensor& places) const;
};

/// Reads a file, or all files of a folder in the order of their names (links are left out: they are files there, too).
/// Throws std::invalid_argument if there is nothing to read.
Text read_text(const std::filesystem::path& path);

/// Sequences of a text: the next characters are the targets. A MapDataset (workers/data/dataset.h); encodable.
struct TextWindows {
  at::Tensor characters;     // uint8 [n]
  std::int64_t context = 1;  // characters of a sequence
  std::int64_t stride = 1;   // from the beginning of one to that of the next

  std::int64_t size() const { return (characters.size(0) - 1 - context) / stride + 1; }
  /// data and target: uint8 [context]
  shoal::Example get(std::int64_t index) const;
  /// uint8 [indices, context]
  shoal::Example get_batch(std::span<const std::int64_t> indices) const;
};

/// What is trained on, all sequences; and the test, the last tenth of the text, in which each character is predicted once.
struct Parts {
  TextWindows train, test;
};
/// Throws std::invalid_argument if the text is too short.
Parts divide(const Text& text, std::int64_t context);
