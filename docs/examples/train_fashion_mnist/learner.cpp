#include "train_fashion_mnist/learner.h"

#include <shoal/tensors/module_state.h>
#include <shoal/tensors/optimizer.h>

#include <utility>
#include <vector>

namespace {

Network make_network(const Job& job) {
  Network network(job.settings.amp);
  if (job.mode == Mode::hogwild)
    shoal::use_module_state(network, job.start);  // the parent's very tensors
  else
    shoal::load_module_state(network, job.start);
  return network;
}

}  // namespace

Learner::Learner(const Job& job, const SharedOptimizer& optimizer, Group group)
    : network_(make_network(job)), group_(std::move(group)), optimizer_(job.settings, *network_, optimizer) {
  if (job.mode == Mode::ddp) ddp_.emplace(network_, group_);
  if (job.mode == Mode::data_parallel)
    parallel_.emplace(network_, shoal::DataParallelOptions{.processes = job.settings.nprocs});
}

at::Tensor Learner::scores(const at::Tensor& images) {
  if (ddp_) return ddp_->forward(images);
  if (parallel_) return parallel_->forward(images);
  return network_->forward(images);
}

double Learner::learn(const at::Tensor& images, const at::Tensor& labels, double rate) {
  optimizer_.set_lr(rate);
  optimizer_.zero_grad();
  at::Tensor loss = torch::cross_entropy_loss(scores(images), labels);
  loss.backward();
  optimizer_.step();
  return loss.item<double>();
}

void Learner::take_optimizer_state_of(int root) {
  shoal::OptimizerState state = shoal::optimizer_state(*optimizer_.own());
  for (at::Tensor& tensor : state) {
    std::vector<at::Tensor> one{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(one, options)->wait();
  }
  shoal::use_optimizer_state(*optimizer_.own(), state);
}

std::int64_t Learner::parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : network_->parameters()) count += parameter.numel();
  return count;
}

void Learner::add_to(shoal::CheckpointParts& parts) {
  parts.add("model", network_);
  optimizer_.add_to(parts, *network_);
}
