#include <shoal/workers/data/named_tensors.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <vector>

namespace shoal {

const at::Tensor& NamedTensors::at(const std::string& name) const {
  const auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string> names;
  names.reserve(size());
  for (const auto& [its, tensor] : *this) names.push_back(its);
  throw std::out_of_range(fmt::format("no tensor is named {:?}; there are {}", name, names));
}

}  // namespace shoal
