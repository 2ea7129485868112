// Samples of files as rows whose fields are known when the program runs: what `shoal beton write` copies.
#pragma once

#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_row.h>
#include <shoal/workers/tar/tar_dataset.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::detail {

/// A field, and the files that it may be: the first of these extensions that a sample has.
struct TarField {
  std::string name;
  std::vector<std::string> extensions;
};

/// The samples of tar archives: pictures, JSON, numbers (cls, index, id), arrays (npy), else bytes. A plain aggregate, so it
/// crosses to workers.
struct TarRows {
  TarDataset<> dataset;
  std::vector<TarField> fields;

  std::int64_t size() const { return dataset.size(); }
  /// Throws DatasetError for a sample without a file for one of the fields.
  BetonRow get(std::int64_t index) const;
};
/// Without `fields` they are the files of the first sample, each by its extension.
TarRows tar_rows(TarDataset<> dataset, std::vector<TarField> fields = {});

/// The samples of a .beton file: JPEGs as they are, raw pictures as tensors.
struct BetonRows {
  BetonFile file;

  std::int64_t size() const { return file.size(); }
  BetonRow get(std::int64_t index) const;
  std::vector<std::string> names() const;
};

}  // namespace shoal::detail
