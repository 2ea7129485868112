// NamedTensors: a sample or a batch whose tensors have names that are known when the program runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/data/collate.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace shoal {

/// A std::map<std::string, at::Tensor> whose at() names those that there are: a field's name that is written wrong is
/// found at once. operator[] is the map's: for a name that is not there it adds an undefined tensor, and says nothing; it
/// is for adding, at() for reading. Threads: as a std::map.
class NamedTensors : public std::map<std::string, at::Tensor> {
 public:
  using Map = std::map<std::string, at::Tensor>;  ///< what it is but for at()
  using Map::Map;
  NamedTensors() = default;
  explicit NamedTensors(Map tensors) : Map(std::move(tensors)) {}  ///< these

  /// Throws std::out_of_range, which lists the names that there are, if none is this one.
  at::Tensor& at(const std::string& name) { return const_cast<at::Tensor&>(std::as_const(*this).at(name)); }
  const at::Tensor& at(const std::string& name) const;  ///< likewise
};

template <>
struct Codec<NamedTensors> : ElementwiseCodec<NamedTensors, std::pair<std::string, at::Tensor>> {};

/// As of the map: all samples need the same names.
template <>
struct Collator<NamedTensors> {
  using Batch = NamedTensors;  ///< each tensor stacked
  /// Throws std::invalid_argument, which names the sample and the tensor.
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    const auto map = [&](std::size_t i) -> const NamedTensors::Map& { return sample(i); };
    return NamedTensors(Collator<NamedTensors::Map>::collate(count, map, where));
  }
};

}  // namespace shoal
