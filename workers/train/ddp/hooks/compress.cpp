// Gradients in another type on their way.
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/comm_hooks.h>

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace shoal {
namespace {

/// A tensor for each bucket, in the heap, where collectives find it in place: kept from step to step.
class Casts {
 public:
  explicit Casts(c10::ScalarType type) : type_(type) {}
  at::Tensor of(std::size_t bucket, const at::Tensor& like) {
    if (bucket >= casts_.size()) casts_.resize(bucket + 1);
    at::Tensor& cast = casts_[bucket];
    if (!cast.defined() || cast.numel() != like.numel() || cast.device() != like.device()) {
      const SharedMemoryScope born_shared;
      cast = at::empty(like.sizes(), like.options().dtype(type_));
    }
    return cast;
  }

 private:
  c10::ScalarType type_;
  std::vector<at::Tensor> casts_;
};

}  // namespace

CommHook compress_hook(const ProcessGroupOfHook& process_group, c10::ScalarType type) {
  return [process_group, casts = std::make_shared<Casts>(type)](GradBucket& bucket) {
    if (is_sparse(bucket)) return begin_mean(process_group, bucket);
    const at::Tensor& buffer = bucket.buffer();
    const at::Tensor cast = casts->of(bucket.index(), buffer);
    cast.copy_(buffer.div_(bucket.divisor()));
    return hook_result_after(begin_sum(process_group, cast), [buffer, cast] { return buffer.copy_(cast); });
  };
}

CommHook fp16_compress_hook(const ProcessGroupOfHook& process_group) { return compress_hook(process_group, at::kHalf); }
CommHook bf16_compress_hook(const ProcessGroupOfHook& process_group) {
  return compress_hook(process_group, at::kBFloat16);
}

CommHook compressed(CommHook hook, c10::ScalarType type) {
  return [hook = std::move(hook), casts = std::make_shared<Casts>(type)](GradBucket& bucket) {
    if (is_sparse(bucket)) return hook(bucket);
    const at::Tensor& buffer = bucket.buffer();
    const at::Tensor cast = casts->of(bucket.index(), buffer);
    cast.copy_(buffer);
    bucket.set_buffer(cast);
    HookResult inner = hook(bucket);
    bucket.set_buffer(buffer);
    return HookResult(inner->then(
        [buffer](c10::ivalue::Future& reduced) {
          if (reduced.hasError()) std::rethrow_exception(reduced.exception_ptr());
          return c10::IValue(buffer.copy_(c10d::detail::parseCppCommHookResult(reduced.value())));
        },
        c10::TensorType::get()));
  };
}

}  // namespace shoal
