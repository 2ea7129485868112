#include "train_fashion_mnist/run.h"

#include <fmt/format.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>
#include <shoal/runtime/stop.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/progress.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "train_fashion_mnist/network.h"
#include "train_fashion_mnist/shards.h"
#include "train_fashion_mnist/training.h"

namespace {

volatile sig_atomic_t caught = 0;

Job make_job(Mode mode, const Settings& settings, const Data& data, const Network& network) {
  const int ranks = ranks_of(mode, settings);
  at::Tensor progress = torch::zeros({ranks + 1}, at::kLong);
  progress[ranks] = -1;  // not known yet
  shoal::share_memory_(progress);
  return Job{.mode = mode,
             .ranks = ranks,
             .settings = settings,
             .data = data,
             .start = shoal::module_state(network),
             .group = shoal::ShmGroup(ranks),
             .stop = shoal::Event(),
             .progress = progress};
}

/// Samples that all ranks will have trained on.
std::int64_t samples_of_run(Mode mode, const Settings& settings, const Data& data) {
  const int ranks = ranks_of(mode, settings);
  if (settings.profile > 0) return (warm_up_batches(settings) + settings.profile) * batch_of(settings, mode) * ranks;
  return settings.epochs * samples_of_epoch(settings, mode, data.train_size);
}

/// How far the ranks are, once rank 0 has said where it begins.
class Bar {
 public:
  Bar(Mode mode, std::int64_t samples) : mode_(mode), samples_(samples) {}

  void update(const at::Tensor& progress) {
    const std::int64_t ranks = progress.numel() - 1, before = progress[ranks].item<std::int64_t>();
    if (before < 0) return;
    if (!bar_)
      bar_.emplace(shoal::ProgressBarOptions{.total = std::max<std::int64_t>(1, samples_ - before),
                                             .label = fmt::format("{:13}", name_of(mode_))});
    bar_->update(progress.narrow(0, 0, ranks).sum().item<std::int64_t>());
  }
  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  Mode mode_;
  std::int64_t samples_;
  std::optional<shoal::ProgressBar> bar_;
};

void check_writable(const char* option, const std::filesystem::path& file) {
  if (file.empty()) return;
  std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  // Folders are made as needed.
  while (!std::filesystem::exists(folder)) folder = folder.parent_path();
  if (!std::filesystem::is_directory(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw std::invalid_argument(
        fmt::format("{} is {}: {} is no folder that can be written to", option, file.native(), folder.native()));
}

void check_folder(const char* option, const std::filesystem::path& folder) {
  check_writable(option, folder);
  if (!folder.empty() && std::filesystem::exists(folder) && !std::filesystem::is_directory(folder))
    throw std::invalid_argument(fmt::format("{} is {}, which is no folder", option, folder.native()));
}

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int signal) { caught = signal; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  (void)shoal::stop_requested();  // the wait for the ranks notes the signals, and passes them on
}

void check_runs(const Settings& settings) {
  if (std::uint32_t free = shoal::Session::current().free_slots(); std::uint32_t(settings.nprocs) > free)
    throw std::invalid_argument(
        fmt::format("--nprocs is {}: at most {} processes have room here", settings.nprocs, free));
  for (const Mode mode : modes_of(settings))
    if (mode == Mode::ddp) shoal::ShmGroup group(settings.nprocs);
  check_folder("--checkpoint", settings.checkpoint);
  check_folder("--cache", settings.cache);
  check_folder("--plots", settings.plots);
  check_writable("--log", settings.log);
  check_writable("--trace", settings.trace);
}

RunResult run(Mode mode, const Settings& settings, const Data& data, Show show) {
  if (caught != 0) throw Interrupted(caught);
  torch::manual_seed(std::int64_t(settings.seed));
  Network network(settings.amp);
  shoal::share_memory_(network);
  const Job job = make_job(mode, settings, data, network);
  const SharedOptimizer optimizer =
      mode == Mode::hogwild ? make_shared_optimizer(settings, network->parameters()) : SharedOptimizer();
  Bar bar(mode, samples_of_run(mode, settings, data));
  const auto started = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds grace = settings.checkpoint.empty() ? std::chrono::milliseconds(500) : settings.grace;
  std::vector<Metrics> ranks;
  try {
    auto context = shoal::start_processes({.nprocs = job.ranks, .name = name_of(mode), .grace_period = grace}, train,
                                          job, optimizer);
    while (!context.join(std::chrono::milliseconds(50)))
      if (show == Show::progress) bar.update(job.progress);
    ranks = std::move(context).results();
  } catch (const shoal::ProcessFailed&) {
    if (caught != 0) throw Interrupted(caught);  // without checkpoints a signal just ends them
    throw;
  }
  bar.finish();
  if (const std::int64_t stopped = ranks.front().stopped; stopped >= 0)
    fmt::print(stderr, "{}: stopped after step {}; the same command goes on from there\n", name_of(mode), stopped);
  if (caught != 0) throw Interrupted(caught);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return make_result(mode, settings, ranks, seconds);
}
