// What shoal's backends ask of the tensors that c10d gives them. Not for users.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

// Each throws std::invalid_argument, which names the call `what`.
namespace shoal::arguments {

/// The one tensor, or list of tensors, of a call that takes one a rank.
template <class T>
const T& only(const std::vector<T>& list, const char* what) {
  if (list.size() != 1)
    throw std::invalid_argument(
        fmt::format("{} of {} tensors at once: a rank has one; use the coalesced form", what, list.size()));
  return list[0];
}

inline void check_like(const at::Tensor& output, const at::Tensor& input, const char* what) {
  if (output.numel() != input.numel() || output.scalar_type() != input.scalar_type())
    throw std::invalid_argument(fmt::format("{}: an output of {} {} for an input of {} {}", what, output.numel(),
                                            c10::toString(output.scalar_type()), input.numel(),
                                            c10::toString(input.scalar_type())));
}

/// c10d's lists have one tensor a rank here, so there is no other that could be the root's.
inline void check_root_tensor(std::int64_t root_tensor, const char* what) {
  if (root_tensor != 0)
    throw std::invalid_argument(fmt::format("{}: root tensor {}: a rank has one, number 0", what, root_tensor));
}

/// What only root gives: silently ignored elsewhere, a wrong root would look like success.
template <class T>
void check_only_on_root(const std::vector<T>& list, const char* what, const char* name, std::int64_t root) {
  if (!list.empty())
    throw std::invalid_argument(fmt::format(
        "{}: {} on a rank that is not root {}, which alone has them: give an empty list", what, name, root));
}

/// The tensors of all lists in one, in their order.
inline std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace shoal::arguments
