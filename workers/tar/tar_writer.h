// TarWriter: samples into tar archives that WebDataset, tar and TarDataset read.
#pragma once

#include <shoal/internal/workers/beton/make/writer_workers.h>
#include <shoal/internal/workers/tar/make/encode_tar_sample.h>
#include <shoal/internal/workers/tar/write/shard_file.h>
#include <shoal/runtime/options.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/sample_write_failed.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal {

/// How samples are written. A new archive begins before a sample that would exceed a limit; a sample larger than
/// shard_bytes is an archive of its own.
struct TarWriterOptions {
  std::int64_t shard_samples = 0;  ///< at most so many samples in an archive; 0: any number
  std::uint64_t shard_bytes = 0;   ///< at most so many bytes; an archive has a multiple of 10240. 0: any number
  bool index = true;               ///< writes each archive's index beside it, which a reader would have to make
  /// What becomes of an earlier run's archives, those whose names are this one's with any number: readers of train-*.tar
  /// would take both runs' for one data set. False: they are refused, and nothing is written. True: close() gives the new
  /// archives their names, when all of them are whole, and removes what else there is of the earlier run's; until then
  /// those are as they were.
  bool replace = false;
  /// With write(): the extension of a member's file, "cls" for a label; "" for the kind of its value alone ("jpg").
  /// Without it that is the member's name and the kind: "label.cls".
  std::map<std::string, std::string> extensions = {};
  int jpeg_quality = 0;  ///< with write(), of pictures that are tensors: 1 to 100; 0: PNG, which loses nothing
  std::vector<std::string> names = {};  ///< with write(), of samples that are pairs, tuples or single values
  /// With write(): worker processes that read samples and make files of them. 0: the calling process does. The archives
  /// are the same with any number.
  int num_workers = 0;
  std::int64_t chunk_size = 100;                  ///< samples that a worker encodes at a time; fewer beyond 8 MiB or so
  StartMethod start_method = get_start_method();  ///< of the workers
  bool fork_despite_threads = false;              ///< see SpawnOptions
};

/// A sample could not be written. The archives that were finished before it stay, unless they were to replace others
/// (TarWriterOptions::replace); there is nothing else.
class TarWriteFailed : public SampleWriteFailed {
 public:
  using SampleWriteFailed::SampleWriteFailed;
};

/// A file of a sample that is written.
struct TarContents {
  std::string_view extension;           ///< behind the key and a dot
  std::span<const std::uint8_t> bytes;  ///< its contents
};

/// Writes archives in POSIX's format (pax where a name or a size needs it). The same samples are the same bytes: nothing in
/// an archive says when or by whom it was written. Each archive is written beside its place, and renamed when it is whole
/// and on disk: at once, or with TarWriterOptions::replace by close(). Belongs to one thread.
class TarWriter {
 public:
  /// `pattern`: the archive's name, or with limits of shards a name with %d or %06d for the number of each. Throws
  /// std::invalid_argument for limits without a number in the name, and for a name with two.
  explicit TarWriter(std::string pattern, TarWriterOptions options = {});
  TarWriter(TarWriter&&) noexcept;
  TarWriter& operator=(TarWriter&&) noexcept;
  /// What was not closed has no name, and is removed.
  ~TarWriter();

  /// Adds a sample. Throws std::invalid_argument for a key with a dot in its name or like the last one, an extension that
  /// is empty or there twice (capitals make no difference), and after close() if the archive's name has no number;
  /// DatasetError for an archive that cannot be written, and before the first one for an earlier run's archives.
  void add(std::string_view key, std::span<const TarContents> files);
  /// Gives the last archive its name; the next sample begins another one. Throws std::invalid_argument if there was no
  /// sample; DatasetError for an archive that cannot be written or named. With `replace` that says which archives are
  /// new and which may be an earlier run's, and another close() goes on with these.
  void close();

  /// The archives that have their names.
  const std::vector<std::filesystem::path>& archives() const { return archives_; }

  /// Adds all samples of a map-style data set, with their numbers as keys (of at least six digits), and closes. Members
  /// become files: integers cls, floats txt, texts and bytes bin, BetonJson json, EncodedImage jpg or png as it is,
  /// tensors uint8 [3, height, width] png or jpg, others npy. An aggregate's std::string `key` is the sample's key
  /// instead, unless TarWriterOptions::extensions gives it a file, or names gives it another name. Throws
  /// TarWriteFailed with the index of the sample at fault, what add() does, and std::invalid_argument unless the writer
  /// is new.
  template <MapDataset D>
  void write(D dataset) {
    begin_write();
    const std::int64_t size = dataset_size(dataset);
    std::vector<std::int64_t> all(std::size_t(size > 0 ? size : 0));
    std::iota(all.begin(), all.end(), 0);
    const bool has_key = options_.names.empty() && !options_.extensions.contains("key");
    const detail::TarSampleEncoder encoder{detail::field_names<SampleOf<D>>(options_.names), options_.extensions,
                                           options_.jpeg_quality, has_key ? detail::key_member<SampleOf<D>>() : -1};
    try {
      detail::encode_samples(
          std::move(dataset), encoder, all,
          {.processes = options_.num_workers,
           .start_method = options_.start_method,
           .name = "tar writer",
           .fork_despite_threads = options_.fork_despite_threads},
          options_.chunk_size, [this](std::span<const std::uint8_t> bytes) { add_encoded(bytes); },
          [this](std::int64_t index) { fail(index); });
    } catch (...) {
      shard_.reset();  // the archive that is not finished
      unnamed_.clear();
      throw;
    }
    close();
  }

 private:
  void begin_write();
  void add_encoded(std::span<const std::uint8_t> bytes);
  /// Called where an exception is being handled.
  [[noreturn]] void fail(std::int64_t index) const;
  /// Throws std::invalid_argument if it is an archive's that is finished.
  std::string next_path() const;
  void finish_shard();
  void name_finished();
  /// Throws DatasetError if there are archives of an earlier run, unless they are to be replaced.
  void check_place() const;

  std::string pattern_;
  TarWriterOptions options_;
  std::unique_ptr<detail::ShardFile> shard_;
  /// Finished ones without their names, whose numbers follow those of archives_: with `replace` until close().
  std::vector<std::unique_ptr<detail::ShardFile>> unnamed_;
  std::vector<std::filesystem::path> archives_;
  std::string last_key_;  // in shard_
  bool is_new_ = true;    // nothing was added or written, nor tried to
};

}  // namespace shoal
