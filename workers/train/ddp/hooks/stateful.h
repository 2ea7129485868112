// What a hook that remembers something consists of. Not for users.
#pragma once

#include <shoal/workers/train/comm_hooks.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// Made by the functions of comm_hooks.h. The state was checked before it is loaded.
class StatefulCommHook::Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  virtual HookResult reduce(GradBucket& bucket) = 0;
  virtual CommHookState save(const std::vector<at::Tensor>& parameters) const = 0;
  virtual void load(const CommHookState& state, const std::vector<at::Tensor>& parameters) = 0;
};

/// Whether all elements are, of floating point numbers; their sum, too. Of a sparse tensor its values.
bool is_finite(const at::Tensor& given);

/// Throws std::invalid_argument if the bucket has a complex parameter, of which libtorch has two real numbers for each
/// element there.
void refuse_complex(const GradBucket& bucket, const char* hook);

/// For CommHookState::strides.
std::vector<std::vector<std::int64_t>> strides_of(const std::vector<at::Tensor>& parameters);

}  // namespace shoal
