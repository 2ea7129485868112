#include <shoal/workers/tar/tar_writer.h>

#include <fmt/format.h>
#include <shoal/internal/workers/beton/make/encode_sample.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/internal/workers/tar/make/numbered_archives.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace shoal {

TarWriter::TarWriter(std::string pattern, TarWriterOptions options)
    : pattern_(std::move(pattern)), options_(std::move(options)) {
  if (options_.shard_samples < 0)
    throw std::invalid_argument(fmt::format("TarWriter: shard_samples is {}; 0 or more", options_.shard_samples));
  if (options_.jpeg_quality < 0 || options_.jpeg_quality > 100)
    throw std::invalid_argument(fmt::format("TarWriter: jpeg_quality is {}; 0 to 100", options_.jpeg_quality));
  if (options_.num_workers < 0 || options_.chunk_size < 1)
    throw std::invalid_argument(fmt::format("TarWriter: num_workers is {}, chunk_size {}; at least 0, and at least 1",
                                            options_.num_workers, options_.chunk_size));
  const auto name = detail::numbered_name(pattern_);
  if (name && detail::numbered_name(name->behind))
    throw std::invalid_argument(
        fmt::format("TarWriter: {:?} has more than one place for a number; leave one %d or %06d in it", pattern_));
  const bool is_limited = options_.shard_samples > 0 || options_.shard_bytes > 0;
  if (is_limited && !name)
    throw std::invalid_argument(fmt::format(
        "TarWriter: several archives, and one name, {:?}; put %06d in it, for the number of each", pattern_));
}

TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;
TarWriter::~TarWriter() = default;

void TarWriter::add(std::string_view key, std::span<const TarContents> files) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(fmt::format("TarWriter: sample {:?}: {}", key, what));
  };
  if (files.empty()) refuse("it has no files");
  if (shard_ && key == last_key_) refuse("the key of the sample before; they would be one sample");
  std::vector<std::string> names, extensions;
  std::uint64_t bytes = 0;
  for (const TarContents& file : files) {
    names.push_back(fmt::format("{}.{}", key, file.extension));
    const auto name = detail::tar_name(names.back());
    if (!name || name->key != key || name->extension != file.extension || names.back().find('\0') != std::string::npos)
      refuse(fmt::format(
          "{:?} as its extension: readers would find another key; a key has no dot behind its folders, and an "
          "extension no slash",
          file.extension));
    extensions.push_back(detail::in_small_letters(file.extension));
    if (std::ranges::count(extensions, extensions.back()) > 1)
      refuse(fmt::format("two files {:?}, in small letters as readers take them", extensions.back()));
    bytes += detail::tar_file_bytes(names.back(), file.bytes.size());
  }
  if (shard_ &&
      ((options_.shard_samples > 0 && shard_->samples() >= options_.shard_samples) ||
       (options_.shard_bytes > 0 && detail::tar_archive_bytes(shard_->bytes() + bytes) > options_.shard_bytes)))
    finish_shard();
  if (!shard_) {
    if (archives_.empty() && unnamed_.empty()) check_place();
    shard_ = std::make_unique<detail::ShardFile>(next_path());
  }
  is_new_ = false;
  shard_->begin_sample();
  for (std::size_t i = 0; i < files.size(); ++i) shard_->add_file(names[i], files[i].bytes);
  last_key_ = key;
}

std::string TarWriter::next_path() const {
  if (const auto name = detail::numbered_name(pattern_)) return name->name(archives_.size() + unnamed_.size());
  if (!archives_.empty())
    throw std::invalid_argument(fmt::format(
        "TarWriter: {:?} is finished, and another archive would take its name; put %06d in it, for the number of each",
        pattern_));
  return pattern_;
}

void TarWriter::check_place() const {
  const auto name = detail::numbered_name(pattern_);
  if (!name || options_.replace) return;
  const auto there = detail::archives_there(*name);
  if (!there.empty())
    throw DatasetError(fmt::format(
        "{}: there already {} {}: readers of all would take two runs for one data set. Remove {}, choose "
        "another name, or set TarWriterOptions::replace (shoal beton write --replace)",
        pattern_, there.size() == 1 ? "is" : "are", detail::listed(there), there.size() == 1 ? "that" : "those"));
}

void TarWriter::finish_shard() {
  shard_->finish();
  unnamed_.push_back(std::move(shard_));
  if (!options_.replace) name_finished();
}

void TarWriter::name_finished() {
  auto next = unnamed_.begin();
  try {
    for (; next != unnamed_.end(); ++next) {
      (*next)->publish(options_.index);
      archives_.push_back((*next)->path());
    }
  } catch (const DatasetError& error) {
    unnamed_.erase(unnamed_.begin(), next);
    if (!options_.replace || archives_.empty()) throw;  // each name has one archive of one run
    std::vector<std::filesystem::path> waiting;
    waiting.reserve(unnamed_.size());
    for (const auto& shard : unnamed_) waiting.push_back(shard->path());
    throw DatasetError(
        fmt::format("{}. Of this run's archives these have their names: {}. These do not, and an earlier run's may be "
                    "in their places: {}. Mend what is wrong and call close() again, or write all anew; until then "
                    "readers of all take two runs for one data set",
                    error.what(), detail::listed(archives_), detail::listed(waiting)));
  }
  unnamed_.clear();
}

void TarWriter::close() {
  if (!shard_ && archives_.empty() && unnamed_.empty())
    throw std::invalid_argument(fmt::format("TarWriter: {:?}: no samples; an archive has at least one", pattern_));
  if (shard_) finish_shard();
  name_finished();
  const auto name = detail::numbered_name(pattern_);
  if (name && options_.replace) detail::remove_others(detail::archives_there(*name), archives_);
}

void TarWriter::begin_write() {
  if (!std::exchange(is_new_, false))
    throw std::invalid_argument(fmt::format(
        "TarWriter: {:?} has been written to; write() numbers archives and samples from 0: make a new TarWriter",
        pattern_));
  check_place();
}

void TarWriter::add_encoded(std::span<const std::uint8_t> bytes) {
  std::vector<TarContents> files;
  while (!bytes.empty()) {
    const detail::EncodedTarSample sample = detail::take_tar_sample(bytes);
    files.clear();
    for (const auto& file : sample.files) files.push_back({file.extension, file.contents});
    add(sample.key, files);
  }
}

void TarWriter::fail(std::int64_t index) const {
  std::throw_with_nested(TarWriteFailed(detail::failure_text(pattern_, index, std::current_exception()), index));
}

}  // namespace shoal
