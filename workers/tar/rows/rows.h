// Samples of files as rows whose fields are known when the program runs: what `shoal beton write` copies.
#pragma once

#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_row.h>
#include <shoal/workers/tar/tar_dataset.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::detail {

/// The samples of tar archives, with the files that the first one has: pictures, JSON, numbers (cls, index, id), arrays
/// (npy), else bytes. A plain aggregate, so it crosses to workers.
struct TarRows {
  TarDataset<> dataset;
  std::vector<std::string> extensions;

  std::int64_t size() const { return dataset.size(); }
  /// Throws DatasetError for a sample that lacks one of the files.
  BetonRow get(std::int64_t index) const;
};
/// Its fields are those of the first sample.
TarRows tar_rows(TarDataset<> dataset);

/// The samples of a .beton file: JPEGs as they are, raw pictures as tensors.
struct BetonRows {
  BetonFile file;

  std::int64_t size() const { return file.size(); }
  BetonRow get(std::int64_t index) const;
  std::vector<std::string> names() const;
};

}  // namespace shoal::detail
