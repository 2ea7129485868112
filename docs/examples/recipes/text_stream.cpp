// Text as a stream, from files too large for memory: each line comes once, as padded numbers, however many workers read.
//
//     text_stream [LINES]      2000 unless said otherwise, in a file that it makes
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/pad_sequence.h>
#include <shoal/workers/datasets/iterable_dataset.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fs = std::filesystem;

struct Text {
  std::int64_t line;
  shoal::Sequence letters;  // of any length: padded when the batch is made
  struct Batch {
    at::Tensor line;
    shoal::PaddedSequences letters;
  };
};

// One pass through the file. It stays in the process that opened it.
class Lines {
 public:
  explicit Lines(const std::string& path) : file_(path) {}

  std::optional<Text> next() {
    std::string text;
    if (!std::getline(file_, text)) return std::nullopt;
    const std::vector<std::int64_t> letters(text.begin(), text.end());  // a tokenizer's place
    return Text{number_++, {at::tensor(letters), 0}};
  }
  // Passes over lines of other workers, without the work of making samples of them.
  std::int64_t skip(std::int64_t count) {
    std::int64_t passed = 0;
    for (std::string text; passed < count && std::getline(file_, text); ++passed) ++number_;
    return passed;
  }

 private:
  std::ifstream file_;
  std::int64_t number_ = 0;
};

// What crosses to the workers: a path.
struct TextFile {
  std::string path;
  Lines stream() const { return Lines(path); }
};

struct Seen {
  std::vector<std::int64_t> lines;
  std::int64_t letters = 0, padding = 0;
  bool operator==(const Seen&) const = default;
};

Seen read_with(int workers, const std::string& path) {
  Seen seen;
  shoal::DataLoader loader({.batch_size = 32, .num_workers = workers}, TextFile{path});
  for (auto& batch : loader) {
    for (std::int64_t i = 0; i < batch.line.size(0); ++i) seen.lines.push_back(batch.line[i].item<std::int64_t>());
    const std::int64_t letters = batch.letters.lengths.sum().item<std::int64_t>();
    seen.letters += letters;
    seen.padding += batch.letters.data.numel() - letters;
  }
  return seen;
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int lines = argc > 1 ? std::stoi(argv[1]) : 2000;
  const fs::path path = fs::temp_directory_path() / fmt::format("shoal-{}.txt", ::getpid());
  std::int64_t letters = 0;
  {
    std::ofstream file(path);
    for (int i = 0; i < lines; ++i) file << std::string(std::size_t(1 + i * 7 % 61), 'x') << "\n";
    for (int i = 0; i < lines; ++i) letters += 1 + i * 7 % 61;
  }
  const Seen alone = read_with(0, path.string());
  const Seen by_two = read_with(2, path.string());
  fs::remove(path);

  bool once = int(alone.lines.size()) == lines && alone.letters == letters;
  for (int i = 0; i < lines; ++i) once = once && alone.lines[i] == i;
  fmt::print("{} lines, {} letters, {} of padding; two workers give {}\n", alone.lines.size(), alone.letters,
             alone.padding, by_two == alone ? "the same batches" : "others");
  return once && by_two == alone ? 0 : 1;
}
