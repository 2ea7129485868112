#include <shoal/internal/workers/train/parallel/replicas.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <array>
#include <concepts>
#include <mutex>
#include <utility>

namespace shoal::detail {
namespace {

/// The gradients that the copies of one parameter or buffer got, added up. A copy that did not use it gives none.
struct SumOfCopies : torch::autograd::Node {
  explicit SumOfCopies(at::Device where) : device(where) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor sum;
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      const at::Tensor here = gradient.to(device, /*non_blocking=*/true);
      sum = sum.defined() ? sum + here : here;
    }
    return {sum};
  }
  at::Device device;
};

/// Nodes were std::shared_ptr until libtorch 2.12.
template <class Pointer>
Pointer make_sum(at::Device where) {
  if constexpr (std::same_as<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<SumOfCopies>(where);
  else
    return c10::make_intrusive<SumOfCopies>(where);
}

/// clone() draws new parameters before it copies the old ones: the program's random numbers are to stay what they are.
class KeptGenerator {
 public:
  KeptGenerator() : generator_(at::detail::getDefaultCPUGenerator()) {
    std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  KeptGenerator(const KeptGenerator&) = delete;
  ~KeptGenerator() {
    std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace

std::vector<std::shared_ptr<torch::nn::Module>> make_replicas(const std::shared_ptr<torch::nn::Module>& module,
                                                              const std::vector<at::Device>& devices) {
  std::vector<std::shared_ptr<torch::nn::Module>> replicas{module};
  {
    const at::NoGradGuard no_grad;
    const KeptGenerator kept;
    for (std::size_t i = 1; i < devices.size(); ++i) replicas.push_back(module->clone(devices[i]));
  }
  if (replicas.size() == 1) return replicas;
  const bool recorded = at::GradMode::is_enabled();
  const auto named = [](const torch::nn::Module& one) {
    return std::array{one.named_parameters(), one.named_buffers()};
  };
  std::vector<decltype(named(*module))> copies;
  for (std::size_t i = 1; i < replicas.size(); ++i) copies.push_back(named(*replicas[i]));
  const auto originals = named(*module);
  for (std::size_t kind = 0; kind < originals.size(); ++kind)
    for (const auto& original : originals[kind]) {
      const at::Tensor& tensor = original.value();
      if (!tensor.defined()) continue;
      if (!tensor.requires_grad() || !recorded) {
        for (auto& copy : copies) copy[kind][original.key()].requires_grad_(false);
        continue;
      }
      const auto sum = make_sum<decltype(torch::autograd::Edge::function)>(tensor.device());
      sum->set_next_edges(torch::autograd::collect_next_edges(tensor));
      for (auto& copy : copies) torch::autograd::set_history(copy[kind][original.key()], sum);
    }
  return replicas;
}

}  // namespace shoal::detail
