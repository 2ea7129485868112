#include <shoal/internal/workers/train/parallel/parallel_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <shoal/ipc/error.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/custom_class.h>

#include <utility>

namespace shoal::detail {
namespace {

/// What the graph keeps. The graph may outlive the DataParallel.
struct PassInGraph : torch::CustomClassHolder {
  explicit PassInGraph(const std::shared_ptr<ParallelCore>& parallel) : core(parallel) {}
  ~PassInGraph() override {
    if (const auto parallel = core.lock()) parallel->forget(pass);
  }

  std::weak_ptr<ParallelCore> core;
  ParallelCore::Pass pass;
};

class ParallelFunction : public torch::autograd::Function<ParallelFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const std::shared_ptr<ParallelCore>& core, std::size_t inputs,
                                                at::TensorList leaves) {
    auto kept = c10::make_intrusive<PassInGraph>(core);
    auto outputs = core->run_forward({leaves.begin(), leaves.begin() + std::ptrdiff_t(inputs)}, true, kept->pass);
    context->saved_data["pass"] = c10::IValue::make_capsule(std::move(kept));
    return outputs;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw std::logic_error("DataParallel: second derivatives (create_graph) do not go through it");
    const auto kept = context->saved_data["pass"].toCapsule();
    auto& own = static_cast<PassInGraph&>(*kept);
    const auto core = own.core.lock();
    if (!core) throw Error("DataParallel: it has gone, and its workers with it, before this backward pass");
    torch::autograd::variable_list results(2);  // of the arguments that are no tensors
    for (at::Tensor& gradient :
         core->run_backward(own.pass, gradients, torch::autograd::get_current_graph_task_keep_graph()))
      results.push_back(std::move(gradient));
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> forward_with_graph(const std::shared_ptr<ParallelCore>& core, std::size_t inputs,
                                           const std::vector<at::Tensor>& leaves) {
  return ParallelFunction::apply(core, inputs, at::TensorList(leaves));
}

}  // namespace shoal::detail
