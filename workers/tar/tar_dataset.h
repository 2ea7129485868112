// TarDataset: the samples of tar archives, as WebDataset has them, by their numbers.
#pragma once

#include <shoal/internal/workers/tar/make/tar_archives.h>
#include <shoal/internal/workers/tar/make/tar_values.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/tar/tar_file.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// How the files of a sample become its members.
struct TarOptions {
  /// Which files are which member's, the first that is there: {{"image", {"jpg", "png"}}, {"label", {"cls"}}}. Without it
  /// a member has the file whose extension is its name, or begins with it and a dot (image: "image.png"). Capitals make
  /// no difference.
  std::map<std::string, std::vector<std::string>> extensions = {};
  DecodeOptions decode = {};  ///< how pictures become tensors
  /// Where indices are kept; empty: beside the archives, or else in $XDG_CACHE_HOME/shoal/tar.
  std::string index_folder = {};
};

/// The samples of tar archives, one after the other. `Sample` is an aggregate whose members are named after files:
/// numbers (their text), std::string, BetonJson, std::vector<std::uint8_t>, EncodedImage (a picture as it is), at::Tensor
/// (pictures as uint8 [3, height, width], .npy, else the bytes), std::optional of these for files that not every sample
/// has; a std::string `key` is the sample's key. Or TarTensors: all files by their extensions.
///
/// Made by tar_dataset(). Plain data: it crosses as handles, and each process maps the archives itself, as it comes to
/// them. Threads: any.
template <class Sample = TarTensors>
struct TarDataset {
  detail::TarArchives archives;  ///< and where their samples are
  TarOptions options;            ///< how files become members

  std::int64_t size() const { return archives.size(); }  ///< samples

  /// Throws std::out_of_range, and DatasetError for a damaged archive, and for a sample that has not all members.
  Sample get(std::int64_t index) const {
    const TarParts parts = this->parts(index);
    const std::string path = archives.path(archives.archive_of(index));
    return detail::decode_tar_sample<Sample>({parts, path, options.extensions, options.decode, archives.cut_at(index)});
  }
  /// The files of a sample as they are. Valid as long as the data set, or a copy of it, so a temporary gives none.
  /// Throws as get().
  TarParts parts(std::int64_t index) const& { return archives.sample(index); }
  TarParts parts(std::int64_t index) const&& = delete;

  /// The piece of an archive in which each sample begins, numbered over all: what BetonSampler's quasi-random order
  /// follows from. `bytes`: of a piece. Throws std::invalid_argument for 0, or 2^63 and more.
  std::vector<std::int64_t> pages(std::uint64_t bytes = 8U << 20U) const { return detail::pages_of(archives, bytes); }
};

/// Opens tar archives as one data set. Reads the headers of those that have no index yet. Throws DatasetError for a file
/// that is no tar archive of samples.
template <class Sample = TarTensors>
TarDataset<Sample> tar_dataset(std::span<const std::filesystem::path> paths, const TarOptions& options = {}) {
  return {detail::open_tars(paths, options.index_folder), options};
}
/// Opens one archive, or those that a pattern of the shell's names: "train-{000000..000146}.tar", "train-*.tar".
template <class Sample = TarTensors>
TarDataset<Sample> tar_dataset(const std::string& pattern, const TarOptions& options = {}) {
  return tar_dataset<Sample>(tar_archives(pattern), options);
}

}  // namespace shoal
