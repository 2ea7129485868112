#include <shoal/internal/workers/sampling/seeded_generator.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace shoal::detail {

struct SeededGenerator::State {
  at::Tensor bytes;
};

SeededGenerator::SeededGenerator(const SampleKey& batch, Afterwards afterwards) {
  constexpr std::uint64_t kOperation = 0x746f726368;  // "torch"
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  if (afterwards == Afterwards::kRestore) before_ = std::make_unique<State>(State{generator.get_state()});
  generator.set_current_seed(SampleRandom(batch, kOperation).next64());
}

SeededGenerator::~SeededGenerator() {
  if (!before_) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  generator.set_state(before_->bytes);
}

}  // namespace shoal::detail
