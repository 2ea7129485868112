// A communication hook as c10d's Reducer calls it.
#pragma once

#include <ATen/core/ivalue.h>
#include <shoal/internal/workers/train/group/forward_pass.h>
#include <shoal/workers/train/comm_hook.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace shoal {

/// The calls of a hook, counted here: in the pass that learns a static graph, the Reducer calls each bucket number 0.
struct HookCalls {
  std::size_t buckets = 0;  // of the Reducer, as it is now
  std::size_t in_step = 0;  // so far
  std::int64_t step = 0;    // the last one that a hook was called in
  GradBucket::Place place_of(const c10d::GradBucket& bucket) {
    if (in_step == 0) ++step;
    GradBucket::Place place{.index = std::max(bucket.getIndex(), in_step++), .step = step};
    place.is_last = place.index + 1 == buckets;
    return place;
  }
};

/// The user's hook. What it refers to is the GradientReducer's, which outlives the Reducer that owns this.
class HookOfReducer final : public c10d::CommHookInterface {
 public:
  HookOfReducer(const CommHook& hook, HookCalls& calls, const int& divisor, const GroupsPass& pass, bool all_come)
      : hook_(hook), calls_(calls), divisor_(divisor), pass_(pass), all_come_(all_come) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    GradBucket::Place place = calls_.place_of(bucket);
    place.divisor = divisor_;
    place.all_come = all_come_;
    GradBucket ours(bucket, place);
    const ForwardPassScope scope(pass_);
    return hook_(ours);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  const CommHook& hook_;
  HookCalls& calls_;
  const int& divisor_;
  const GroupsPass& pass_;
  bool all_come_;
};

}  // namespace shoal
