// Whether all ranks have the same module.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

using NamedTensorList = std::vector<std::pair<std::string, at::Tensor>>;

/// Collective: throws std::invalid_argument on every rank, with the same words, if a rank's tensors
/// differ from rank 0's in number, name, type, shape or strides, or in what is said of them. Names the rank and the first
/// that differs. Of an undefined tensor the name alone counts. `whose`: "module", for example. `uses`: for each tensor, in
/// words; or none.
void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                             const NamedTensorList& tensors, std::string_view whose = "module",
                             const std::vector<std::string>& uses = {});

/// Collective: the same for lines of text. `refusal`: why this rank has none; it is thrown here, and the others get
/// std::invalid_argument, which says so.
void check_same_lines(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::vector<std::string> lines,
                      std::string_view whose, const std::exception_ptr& refusal = {});

/// "parameter 0" and so on, for tensors whose names nobody knows; an undefined one's name says that it is.
NamedTensorList named_by_number(const std::vector<at::Tensor>& parameters);

}  // namespace shoal
