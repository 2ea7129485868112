#include <shoal/internal/workers/train/group/forward_pass.h>

#include <fmt/format.h>

#include <utility>

namespace shoal {
namespace {

thread_local GroupsPass innermost;

}  // namespace

ForwardPassScope::ForwardPassScope(const GroupsPass& pass) : before_(std::exchange(innermost, pass)) {}
ForwardPassScope::~ForwardPassScope() { innermost = before_; }
const GroupsPass& ForwardPassScope::current() { return innermost; }

std::string text_of(ForwardPass pass) {
  if (pass.model == 0) return {};
  const std::string model =
      pass.model == 1 ? "DistributedDataParallel" : fmt::format("DistributedDataParallel {}", pass.model);
  if (pass.number == 0) return fmt::format(" before a forward pass of {}", model);
  if (pass.number == ForwardPass::kStartsAnew) return fmt::format(" to start {} anew after a failed pass", model);
  return fmt::format(" in forward pass {} of {}", pass.number, model);
}

std::string why_apart(const std::string& one, ForwardPass of_one, const std::string& other, ForwardPass of_other) {
  const auto is_under_way = [](ForwardPass pass) {
    return pass.model != 0 && pass.number != 0 && pass.number != ForwardPass::kStartsAnew;
  };
  if ((is_under_way(of_one) && of_other == ForwardPass{}) || (is_under_way(of_other) && of_one == ForwardPass{}))
    return fmt::format(
        "; {} is in a pass of DistributedDataParallel, and {} in none: a rank that calls forward() alone, to evaluate, "
        "takes a NoGradGuard",
        is_under_way(of_one) ? one : other, is_under_way(of_one) ? other : one);
  if (of_one.number == 0 || of_other.number == 0 || of_one.model != of_other.model) return {};
  if (of_one.number == of_other.number) return {};
  if (of_one.number == ForwardPass::kStartsAnew || of_other.number == ForwardPass::kStartsAnew) return {};
  const bool is_ahead = of_one.number > of_other.number;
  return fmt::format(
      "; {} is ahead: a pass that it began has brought no gradients, because of an exception in the loss, or because "
      "forward() was called there alone, which takes a NoGradGuard",
      is_ahead ? one : other);
}

}  // namespace shoal
