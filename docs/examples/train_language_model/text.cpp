#include "train_language_model/text.h"

#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::invalid_argument(fmt::format("--text: {} cannot be read", file.native()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string all_contents(const fs::path& path) {
  if (!fs::exists(path))
    throw std::invalid_argument(
        fmt::format("--text: there is no {}; the default is of Debian's package base-files, any other file will do",
                    path.native()));
  if (!fs::is_directory(path)) return contents(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  std::ranges::sort(files);
  std::string all;
  for (const fs::path& file : files) all += contents(file);
  return all;
}

}  // namespace

Text read_text(const fs::path& path) {
  const std::string all = all_contents(path);
  std::array<bool, 256> occurs{};
  for (const char c : all) occurs[static_cast<unsigned char>(c)] = true;
  Text text;
  std::array<std::uint8_t, 256> places{};
  for (std::size_t c = 0; c < occurs.size(); ++c) {
    if (!occurs[c]) continue;
    places[c] = std::uint8_t(text.vocabulary.size());
    text.vocabulary += char(c);
  }
  text.characters = torch::empty({std::int64_t(all.size())}, at::kByte);
  std::ranges::transform(all, text.characters.data_ptr<std::uint8_t>(),
                         [&](char c) { return places[static_cast<unsigned char>(c)]; });
  shoal::share_memory_(text.characters);  // for loader workers
  return text;
}

at::Tensor Text::encode(const std::string& said) const {
  std::vector<std::int64_t> places;
  for (const char c : said)
    if (const auto place = vocabulary.find(c); place != std::string::npos) places.push_back(std::int64_t(place));
  return torch::tensor(places, at::kLong);
}

std::string Text::decode(const at::Tensor& places) const {
  std::string said;
  for (std::int64_t i = 0; i < places.numel(); ++i) said += vocabulary.at(std::size_t(places[i].item<std::int64_t>()));
  return said;
}

shoal::Example TextWindows::get(std::int64_t index) const {
  shoal::check_dataset_index(index, size());
  const std::int64_t begin = index * stride;
  return {characters.narrow(0, begin, context), characters.narrow(0, begin + 1, context)};
}

shoal::Example TextWindows::get_batch(std::span<const std::int64_t> indices) const {
  // All sequences with the character after them, as a view; the rows that are asked for are copied.
  const at::Tensor rows = shoal::select_rows(characters.unfold(0, context + 1, stride), indices);
  return {rows.narrow(1, 0, context), rows.narrow(1, 1, context)};
}

Parts divide(const Text& text, std::int64_t context) {
  const std::int64_t all = text.characters.size(0), test = all / 10;
  if (test < context + 1)
    throw std::invalid_argument(
        fmt::format("--text has {} characters; for a context of {} it needs {}", all, context, 10 * (context + 1)));
  return {.train = {text.characters.narrow(0, 0, all - test), context, 1},
          .test = {text.characters.narrow(0, all - test, test), context, context}};
}
