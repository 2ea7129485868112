#include "train_fashion_mnist/agreement.h"

#include <ATen/ops/full.h>
#include <shoal/runtime/stop.h>

#include <vector>

namespace {

template <class T>
T reduced(const Group& group, T own, at::ScalarType type, c10d::ReduceOp::RedOpType operation) {
  std::vector<at::Tensor> value{at::full({1}, own, type)};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  group->allreduce(value, options)->wait();
  return value[0].item<T>();
}

}  // namespace

double sum_of(const Group& group, double own) { return reduced(group, own, at::kDouble, c10d::ReduceOp::SUM); }

std::int64_t largest_of(const Group& group, std::int64_t own) {
  return reduced(group, own, at::kLong, c10d::ReduceOp::MAX);
}

bool any_of(const Group& group, bool own) { return largest_of(group, own ? 1 : 0) != 0; }

bool StopVote::stops() {
  if (join_ != nullptr) join_->announce(*this, true);
  return any_of(group_, shoal::stop_requested());
}

void StopVote::shadow(const shoal::JoinStep&) { (void)any_of(group_, shoal::stop_requested()); }

void StopVote::end_join(int) {}
