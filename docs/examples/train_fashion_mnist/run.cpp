#include "train_fashion_mnist/run.h"

#include <fmt/format.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/module.h>
#include <shoal/workers/data/progress.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "train_fashion_mnist/training.h"

namespace {

volatile sig_atomic_t interrupted = 0;

Job make_job(const std::string& mode, const Settings& settings, const shoal::MnistDataset& train_set,
             const shoal::MnistDataset& test_set, Network& network, const std::string& checkpoint_file) {
  const int nprocs = mode == "single" ? 1 : settings.nprocs;
  Checkpoint start;
  if (!checkpoint_file.empty())
    if (auto found = load_checkpoint(checkpoint_file, network)) start = *found;
  if (start.parameters.empty())
    for (const at::Tensor& parameter : network->parameters()) start.parameters.push_back(parameter.detach());
  shoal::share_memory_(start.parameters);
  shoal::share_memory_(start.momentum);
  shoal::SharedOptimizerState momentum;
  if (mode == "hogwild") {
    torch::optim::SGD shared(start.parameters, torch::optim::SGDOptions(settings.lr).momentum(0.5));
    momentum = shoal::share_optimizer_state(shared);
    for (std::size_t i = 0; i < start.momentum.size(); ++i) momentum[i].copy_(start.momentum[i]);
  }
  at::Tensor progress = torch::zeros({nprocs}, at::kLong);
  shoal::share_memory_(progress);
  return Job{mode,
             nprocs,
             settings,
             train_set,
             test_set,
             start,
             momentum,
             shoal::ShmGroup(nprocs),
             shoal::Barrier(nprocs),
             shoal::Queue<Checkpoint>(4),
             progress};
}

void check_writable(const char* option, const std::string& file) {
  if (file.empty()) return;
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    throw std::invalid_argument(
        fmt::format("{} is {}: {} is no folder that can be written to", option, file, folder.string()));
}

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
}

void check_runs(const Settings& settings) {
  if (std::uint32_t free = shoal::Session::current().free_slots(); std::uint32_t(settings.nprocs) > free)
    throw std::invalid_argument(
        fmt::format("--nprocs is {}: at most {} processes have room here", settings.nprocs, free));
  for (const std::string& mode : modes_of(settings)) {
    if (mode == "ddp") shoal::ShmGroup group(settings.nprocs);
    if (!settings.checkpoint.empty())
      (void)load_checkpoint(file_of_run(settings.checkpoint, settings, mode), Network());
  }
  check_writable("--checkpoint", settings.checkpoint);
  check_writable("--trace", settings.trace);
}

RunResult run(const std::string& mode, const Settings& settings, const shoal::MnistDataset& train_set,
              const shoal::MnistDataset& test_set) {
  torch::manual_seed(std::int64_t(settings.seed));
  Network network;
  const std::string file = file_of_run(settings.checkpoint, settings, mode);
  Job job = make_job(mode, settings, train_set, test_set, network, file);

  const std::int64_t epochs_left = std::max<std::int64_t>(0, settings.epochs - job.start.epoch);
  if (job.start.epoch > 0) fmt::print(stderr, "{}: going on from {} after epoch {}\n", mode, file, job.start.epoch);
  const std::int64_t expected = settings.profile > 0
                                    ? (warm_up_batches(settings) + settings.profile) * settings.batch_size * job.nprocs
                                    : epochs_left * (train_set.size() / job.nprocs) * job.nprocs;
  shoal::ProgressBar bar({.total = std::max<std::int64_t>(1, expected), .label = fmt::format("{:8}", mode)});
  auto started = std::chrono::steady_clock::now();
  auto ranks = shoal::start_processes({.nprocs = job.nprocs, .name = mode}, train, job);
  bool running = true;
  while (running) {
    running = !ranks.join(std::chrono::milliseconds(50));
    while (auto checkpoint = job.checkpoints.try_get()) save_checkpoint(file, *checkpoint, network);
    if (interrupted) throw Interrupted();
    bar.update(job.progress.sum().item<std::int64_t>());
  }
  bar.finish();

  RunResult result{mode, job.nprocs, 0, 0, 0, 0, 0, {}};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  result.threads = std::max(1, int(std::thread::hardware_concurrency()) / job.nprocs);
  if (settings.profile > 0) {
    result.profile = ranks.results().front().profile;
    return result;
  }
  at::Tensor confusion = torch::zeros({10, 10}, at::kLong);
  double slowest = 0;
  std::int64_t samples = 0;
  for (const Metrics& metrics : ranks.results()) {
    confusion += metrics.confusion;
    slowest = std::max(slowest, metrics.seconds);
    samples += metrics.samples;
    result.loss += metrics.loss / job.nprocs;
  }
  result.samples_per_second = slowest > 0 ? double(samples) / slowest : 0;
  result.test_accuracy = confusion.trace().item<double>() / confusion.sum().item<double>();
  return result;
}

void print_results(const std::vector<RunResult>& results) {
  if (!results.front().profile.empty()) {
    for (const RunResult& result : results)
      fmt::print("\n{}, rank 0 of {}\n{}", result.mode, result.nprocs, result.profile);
    return;
  }
  const double single = results.front().mode == "single" ? results.front().samples_per_second : 0;
  fmt::print("\n{:8} {:>9} {:>8} {:>9} {:>11} {:>9} {:>8} {:>14}\n", "run", "processes", "threads", "seconds",
             "samples/s", "speed-up", "loss", "test accuracy");
  auto json = nlohmann::ordered_json::array();
  for (const RunResult& result : results) {
    const bool compared = single > 0 && result.samples_per_second > 0;
    const double speed_up = compared ? result.samples_per_second / single : 0;
    fmt::print("{:8} {:9} {:8} {:9.1f} {:11.0f} {:>9} {:8.4f} {:14.4f}\n", result.mode, result.nprocs, result.threads,
               result.seconds, result.samples_per_second, compared ? fmt::format("{:.2f}", speed_up) : "-", result.loss,
               result.test_accuracy);
    nlohmann::ordered_json row;
    row["mode"] = result.mode;
    row["nprocs"] = result.nprocs;
    row["threads"] = result.threads;
    row["seconds"] = result.seconds;
    row["samples_per_second"] = result.samples_per_second;
    if (compared) row["speed_up"] = speed_up;
    row["loss"] = result.loss;
    row["test_accuracy"] = result.test_accuracy;
    json.push_back(row);
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"runs", json}}.dump());
}
