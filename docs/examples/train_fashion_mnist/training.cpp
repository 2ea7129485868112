#include "train_fashion_mnist/training.h"

#include <shoal/tensors/codec.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/process_group.h>

#include <chrono>
#include <functional>
#include <optional>

namespace {

constexpr double kMomentum = 0.9;
/// The buffers collect every process's gradients, so each adds less.
constexpr double kHogwildMomentum = 0.5;

using shoal::DataLoader;
using shoal::DistributedSampler;

/// The samples that this rank trains on, the same number on every rank.
DistributedSampler shard_of(const Job& job, int rank) {
  return DistributedSampler({.num_replicas = job.nprocs, .rank = rank, .seed = job.settings.seed, .drop_last = true},
                            job.train.size());
}

/// This process's own copy of momentum buffers, or the shared ones.
std::vector<at::Tensor> own_copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

std::vector<at::Tensor> momentum_of(torch::optim::SGD& optimizer) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& parameter : optimizer.param_groups().at(0).params()) {
    auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return {};
    buffers.push_back(static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer());
  }
  return buffers;
}

/// The state as it is now: the optimizer goes on changing its own.
Checkpoint snapshot(std::int64_t epoch, const Network& network, torch::optim::SGD& optimizer) {
  Checkpoint checkpoint{epoch, {}, own_copies(momentum_of(optimizer))};
  for (const at::Tensor& parameter : network->parameters()) checkpoint.parameters.push_back(parameter.detach().clone());
  return checkpoint;
}

at::Tensor confusion_of(Network& network, const Job& job, int rank) {
  torch::NoGradGuard no_gradients;
  network->eval();
  at::Tensor confusion = torch::zeros({10, 10}, at::kLong);
  // Each sample counts once, so one rank may have one more than another: nothing is reduced before the end.
  DataLoader loader({.batch_size = 500}, job.test,
                    shoal::EvaluationSampler({.num_replicas = job.nprocs, .rank = rank}, job.test.size()));
  for (auto& [images, labels] : loader) {
    at::Tensor answers = network->forward(images).argmax(1);
    confusion += torch::bincount(labels * 10 + answers, {}, 100).reshape({10, 10});
  }
  return confusion;
}

}  // namespace

Metrics train(int rank, Job job) {
  torch::manual_seed(std::int64_t(job.settings.seed));
  Network network;
  {
    torch::NoGradGuard no_gradients;
    auto parameters = network->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // Hogwild trains the parent's very tensors; the others train copies of their own.
      if (job.mode == "hogwild")
        parameters[i].set_data(job.start.parameters.at(i));
      else
        parameters[i].copy_(job.start.parameters.at(i));
    }
  }
  const bool hogwild = job.mode == "hogwild";
  torch::optim::SGD optimizer(
      network->parameters(),
      torch::optim::SGDOptions(job.settings.lr).momentum(hogwild ? kHogwildMomentum : kMomentum));
  if (hogwild)
    shoal::use_optimizer_state(optimizer, job.momentum);
  else if (!job.start.momentum.empty())
    shoal::use_optimizer_state(optimizer, own_copies(job.start.momentum));

  std::function<at::Tensor(const at::Tensor&)> forward = [&](const at::Tensor& images) {
    return network->forward(images);
  };
  std::optional<shoal::DistributedDataParallel<Network>> ddp;
  if (job.mode == "ddp") {
    ddp.emplace(network, shoal::init_process_group(job.group, rank));
    forward = [&](const at::Tensor& images) { return ddp->forward(images); };
  }

  DataLoader loader({.batch_size = job.settings.batch_size, .num_workers = job.settings.workers}, job.train,
                    shard_of(job, rank));
  const double steps = double(loader.size() * job.settings.epochs);
  std::int64_t step = loader.size() * job.start.epoch, samples = 0;
  double loss_sum = 0;
  std::int64_t* progress = job.progress.data_ptr<std::int64_t>() + rank;
  auto train_on = [&](shoal::Example& batch) {
    auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
    options.lr(job.settings.lr * (1 - double(step++) / steps));
    optimizer.zero_grad();  // to none: the reducer hands out views of its buckets
    at::Tensor loss = torch::cross_entropy_loss(forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
    samples += batch.target.size(0);
    *progress = samples;  // an aligned word that only this rank writes
  };
  if (job.settings.profile > 0) {
    Metrics metrics{};
    const std::string trace = rank == 0 ? file_of_run(job.settings.trace, job.settings, job.mode) : std::string();
    metrics.profile = loader.profile(job.settings.profile, train_on, {.trace = trace}).to_string();
    job.trained.wait();  // ddp: nobody leaves while others step
    return metrics;
  }
  auto started = std::chrono::steady_clock::now();
  for (std::int64_t epoch = job.start.epoch; epoch < job.settings.epochs; ++epoch) {
    loader.set_epoch(epoch);
    loss_sum = 0;
    for (auto& batch : loader) train_on(batch);
    if (rank == 0 && !job.settings.checkpoint.empty()) job.checkpoints.put(snapshot(epoch + 1, network, optimizer));
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  job.trained.wait();  // hogwild: nobody changes the model any more
  return {loss_sum / double(loader.size()), seconds, samples, confusion_of(network, job, rank), {}};
}
