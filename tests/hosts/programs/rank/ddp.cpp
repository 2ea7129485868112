// DistributedDataParallel over a group of several hosts, compared with one process that has all the data.
#include "tests/hosts/programs/rank/ddp.h"

#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

namespace shoal::test {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(20, 400))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(400, 3))};
};
TORCH_MODULE(Net);

at::Tensor input_of(int rank, int step) {
  torch::manual_seed(std::uint64_t(100 * step + rank));
  return torch::randn({8, 20}, at::kDouble);
}

}  // namespace

double difference_of_ddp(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  torch::manual_seed(std::uint64_t(7 + group->getRank()));  // rank 0's parameters go to all
  Net net;
  DistributedDataParallel<Net> ddp(net, group);
  torch::manual_seed(7);
  Net alone;
  torch::optim::SGD all(net->parameters(), 0.1), one(alone->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    all.zero_grad();
    ddp.forward(input_of(group->getRank(), step)).pow(2).mean().backward();
    all.step();
    one.zero_grad();
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (int rank = 0; rank < group->getSize(); ++rank)
      loss = loss + alone->forward(input_of(rank, step)).pow(2).mean() / group->getSize();
    loss.backward();
    one.step();
  }
  double most = 0;
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    most = std::max(most, (net->parameters()[i] - alone->parameters()[i]).abs().max().item<double>());
  return most;
}

}  // namespace shoal::test
