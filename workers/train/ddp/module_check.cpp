#include <shoal/internal/workers/train/ddp/module_check.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/codec/base.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {
namespace {

std::string describe(const NamedTensorList& tensors, const std::vector<std::string>& uses) {
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (!tensor.defined()) {
      text += name + "\n";  // which says all
      continue;
    }
    text += fmt::format(
        "{} ({} [{}], {}{}{})\n", name, c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ", "),
        tensor.layout() == c10::kStrided ? fmt::format("strides [{}]", fmt::join(tensor.strides().vec(), ", "))
                                         : c10::str(tensor.layout()),
        uses.empty() || uses[i].empty() ? "" : ", ", uses.empty() ? "" : uses[i]);
  }
  return text;
}

std::vector<at::Tensor> from_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                                       const at::Tensor& own) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < process_group->getSize(); ++rank) all[0].push_back(at::empty(own.sizes(), own.options()));
  std::vector<at::Tensor> input{own};
  process_group->allgather(all, input)->wait();
  return all[0];
}

/// The first line in which the two differ.
std::pair<std::string, std::string> first_difference(const std::string& first, const std::string& second) {
  std::istringstream a(first), b(second);
  std::string line_a, line_b;
  for (;;) {
    bool has_a = bool(std::getline(a, line_a)), has_b = bool(std::getline(b, line_b));
    if (!has_a) line_a = "nothing more";
    if (!has_b) line_b = "nothing more";
    if (line_a != line_b || (!has_a && !has_b)) return {line_a, line_b};
  }
}

/// Throws on all ranks, with the same words, if a rank's lines differ from rank 0's.
void check_same_text(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::string& own,
                     std::string_view whose) {
  at::Tensor summary = at::empty({2}, at::kLong);
  summary.data_ptr<std::int64_t>()[0] = std::int64_t(own.size());
  summary.data_ptr<std::int64_t>()[1] = std::int64_t(schema_hash(own));
  std::int64_t longest = 0;
  bool same = true;
  for (const at::Tensor& theirs : from_all_ranks(process_group, summary)) {
    auto* words = theirs.data_ptr<std::int64_t>();
    longest = std::max(longest, words[0]);
    same = same && words[0] == summary.data_ptr<std::int64_t>()[0] && words[1] == summary.data_ptr<std::int64_t>()[1];
  }
  // Every rank with rank 0's summary sees the rank that has another one, which sees rank 0: so all of
  // them come here, or none.
  if (same) return;
  at::Tensor text = at::zeros({longest}, at::kByte);
  std::memcpy(text.data_ptr(), own.data(), own.size());
  std::vector<std::string> texts;
  for (const at::Tensor& theirs : from_all_ranks(process_group, text)) {
    std::string line(static_cast<const char*>(theirs.data_ptr()), std::size_t(longest));
    line.erase(line.find_last_not_of('\0') + 1);
    texts.push_back(std::move(line));
  }
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    auto [of_first, of_other] = first_difference(texts[0], texts[rank]);
    throw std::invalid_argument(fmt::format("the {} of rank {} differs from that of rank 0: {} instead of {}", whose,
                                            rank, of_other, of_first));
  }
}

}  // namespace

void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                             const NamedTensorList& tensors, std::string_view whose,
                             const std::vector<std::string>& uses) {
  check_same_text(process_group, describe(tensors, uses), whose);
}

void check_same_lines(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::vector<std::string> lines,
                      std::string_view whose, const std::exception_ptr& refusal) {
  if (refusal) try {
      std::rethrow_exception(refusal);
    } catch (const std::exception& error) {
      lines = {fmt::format("nothing, since rank {} cannot make it: {}", process_group->getRank(), error.what())};
    }
  try {
    check_same_text(process_group, fmt::format("{}\n", fmt::join(lines, "\n")), whose);
  } catch (const std::invalid_argument&) {
    if (!refusal) throw;
  }
  if (refusal) std::rethrow_exception(refusal);
}

NamedTensorList named_by_number(const std::vector<at::Tensor>& parameters) {
  NamedTensorList named;
  named.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters)
    named.emplace_back(fmt::format("parameter {}{}", named.size(), parameter.defined() ? "" : ", undefined"),
                       parameter);
  return named;
}

}  // namespace shoal
