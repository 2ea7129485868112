// DistributedDataParallel and DiLoCo over a group of several hosts, compared with one process that has all the data.
#include "tests/hosts/programs/rank/ddp.h"

#include <fmt/format.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/diloco.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/process_group_parts.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

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

std::string said_of_lost_pass(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  torch::manual_seed(7);
  Net net;
  DistributedDataParallel<Net> ddp(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const bool loses = group->getRank() == group->getSize() - 1;
  std::string said = "nothing";
  for (int step = 0; step < 8 + int(loses); ++step) try {
      optimizer.zero_grad();
      const at::Tensor loss = ddp.forward(input_of(group->getRank(), step)).pow(2).mean();
      if (step == 3 && loses) continue;
      loss.backward();
      optimizer.step();
    } catch (const CollectiveMismatch& error) {
      if (said != "nothing") return fmt::format("it was told again: {}", error.what());
      said = error.what();
    }
  // The same parameters everywhere?
  const at::Tensor own = torch::nn::utils::parameters_to_vector(net->parameters()).detach();
  std::vector<at::Tensor> least{own.clone()};
  group->allreduce(least, {.reduceOp = c10d::ReduceOp::MIN})->wait();
  return at::equal(own, least[0]) ? said : "the ranks' parameters differ";
}

double difference_of_diloco(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::vector<int>& host_of) {
  const int me = group->getRank();
  const int hosts = *std::ranges::max_element(host_of) + 1;
  torch::manual_seed(std::uint64_t(7 + me));
  Net net;
  DistributedDataParallel<Net> ddp(net, split(group, host_of[std::size_t(me)], 0));
  DiLoCo diloco(net->parameters(), group, {.sync_every = 3});
  torch::optim::SGD inner(net->parameters(), 0.1);

  std::vector<Net> replicas;  // each host's
  std::vector<at::Tensor> start;
  for (int host = 0; host < hosts; ++host) {
    torch::manual_seed(7);
    replicas.emplace_back();
  }
  for (const at::Tensor& parameter : replicas[0]->parameters())
    start.push_back(parameter.detach().clone().set_requires_grad(true));
  torch::optim::SGD outer(start, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
  for (int step = 0; step < 6; ++step) {
    inner.zero_grad();
    ddp.forward(input_of(me, step)).pow(2).mean().backward();
    inner.step();
    const bool synced = diloco.step();
    for (int host = 0; host < hosts; ++host) {
      Net& replica = replicas[std::size_t(host)];
      torch::optim::SGD of_replica(replica->parameters(), 0.1);
      of_replica.zero_grad();
      const auto ranks = std::ranges::count(host_of, host);
      for (int rank = 0; rank < group->getSize(); ++rank)
        if (host_of[std::size_t(rank)] == host)
          (replica->forward(input_of(rank, step)).pow(2).mean() / double(ranks)).backward();
      of_replica.step();
    }
    if (!synced) continue;
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < start.size(); ++i) {
      start[i].mutable_grad() = torch::zeros_like(start[i]);
      for (const int host : host_of)  // weighted by their ranks
        start[i].mutable_grad() += (start[i] - replicas[std::size_t(host)]->parameters()[i]) / group->getSize();
    }
    outer.step();
    for (Net& replica : replicas)
      for (std::size_t i = 0; i < start.size(); ++i) replica->parameters()[i].copy_(start[i]);
  }
  double most = 0;
  for (std::size_t i = 0; i < start.size(); ++i)
    most = std::max(most, (net->parameters()[i] - start[i]).abs().max().item<double>());
  return most;
}

}  // namespace shoal::test
