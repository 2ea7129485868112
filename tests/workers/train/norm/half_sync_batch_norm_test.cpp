// SyncBatchNorm in half types: what it loses is one rounding of the type, however far from zero the mean is.
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/sync_batch_norm.h>
#include <torch/torch.h>

#include <string>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace half_sync_batch_norm_test {

namespace {

constexpr int kChannels = 32, kSamples = 8;

/// Numbers that were rounded once. `floats`: what floats lose before that, as a part of the most.
void require_rounded_once(const at::Tensor& got, const at::Tensor& wanted, const std::string& what,
                          double floats = 1e-5) {
  const double half_ulp = got.scalar_type() == at::kBFloat16 ? 0x1p-8 : got.scalar_type() == at::kHalf ? 0x1p-11 : 0;
  const at::Tensor exact = wanted.detach();
  const at::Tensor apart = (got.detach().to(at::kDouble) - exact).abs();
  const at::Tensor excess = apart - half_ulp * exact.abs() - floats * (1 + exact.abs().max());
  require(excess.max().item<double>() <= 0, fmt::format("{}: {} apart of at most {}", what, apart.max().item<double>(),
                                                        exact.abs().max().item<double>()));
}

/// `parameters`: the type of parameters and running values, which torch lets be float. Two ranks beside one process
/// with both halves of the batch, in double.
std::string beside_one_process(int rank, ShmGroup group, at::ScalarType type, at::ScalarType parameters, double mean,
                               double deviation, bool affine, bool casts) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  SyncBatchNorm norm(SyncBatchNormOptions{.num_features = kChannels, .momentum = 0.3, .affine = affine});
  norm->set_group(process_group);
  norm->to(parameters);
  torch::nn::BatchNorm2d whole(torch::nn::BatchNorm2dOptions(kChannels).momentum(0.3).affine(affine));
  whole->to(at::kDouble);
  if (affine) {
    norm->weight.detach().copy_(torch::linspace(0.3, 2, kChannels));
    norm->bias.detach().copy_(torch::linspace(0, 3, kChannels));
  }
  norm->running_mean.copy_(torch::linspace(0.5, 1.5, kChannels) * mean);
  norm->running_var.copy_(torch::linspace(0.5, 1.5, kChannels) * deviation * deviation);
  copy_values(*norm, *whole);

  torch::manual_seed(7);
  const std::vector<std::int64_t> sizes{2 * kSamples, kChannels, 5, 3};
  const at::Tensor all = (torch::randn(sizes) * deviation + mean).to(type), gradients = torch::randn(sizes).to(type);
  const auto mine = [&](const at::Tensor& of_all) { return of_all.narrow(0, kSamples * rank, kSamples); };
  at::Tensor own = mine(all).clone().set_requires_grad(true);
  at::Tensor joint = all.to(at::kDouble).set_requires_grad(true);
  const bool before = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, casts);
  const at::Tensor output = norm->forward(own);
  at::autocast::set_autocast_enabled(at::kCPU, before);
  const at::Tensor wanted = whole->forward(joint);
  require(output.scalar_type() == type, "the input's type");
  require_rounded_once(output, mine(wanted), "output");
  output.backward(mine(gradients));
  wanted.backward(gradients.to(at::kDouble));
  require(own.grad().scalar_type() == type, "the type of the input's gradient");
  require_rounded_once(own.grad(), mine(joint.grad()), "gradient of the input");
  if (affine) {
    const at::Tensor normed =
        (mine(wanted).detach() - whole->bias.detach().view({1, -1, 1, 1})) / whole->weight.detach().view({1, -1, 1, 1});
    const at::Tensor of_output = mine(gradients).to(at::kDouble);
    require_rounded_once(norm->weight.grad(), (of_output * normed).sum({0, 2, 3}), "gradient of weight");
    require_rounded_once(norm->bias.grad(), of_output.sum({0, 2, 3}), "gradient of bias");
  }
  require(norm->running_mean.scalar_type() == parameters, "the type of running values");
  require_rounded_once(norm->running_mean, whole->running_mean, "running mean", 1e-6);
  require_rounded_once(norm->running_var, whole->running_var, "running variance", 1e-6);

  norm->eval();
  whole->eval();
  copy_values(*norm, *whole);
  require_rounded_once(norm->forward(mine(all)), mine(whole->forward(all.to(at::kDouble))), "evaluation");
  return "went through";
}

}  // namespace

TEST_CASE("SyncBatchNorm: half types are rounded once, at the end") {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto parameters : {type, at::kFloat})
      for (const auto& [mean, deviation] : {std::pair{0.0, 1.0}, {30.0, 1.0}, {10.0, 0.1}, {-200.0, 3.0}})
        for (const bool affine : {true, false}) {
          INFO(type << ", parameters " << parameters << ", mean " << mean << ", deviation " << deviation);
          const bool casts = parameters == at::kFloat && affine;
          for (auto& said :
               spawn({.nprocs = 2}, beside_one_process, ShmGroup(2), type, parameters, mean, deviation, affine, casts))
            CHECK(said == "went through");
        }
}

}  // namespace half_sync_batch_norm_test
