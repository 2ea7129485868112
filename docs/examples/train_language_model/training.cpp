#include "train_language_model/training.h"

#include <fmt/format.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/gather_samples.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "train_language_model/report.h"

namespace {

using Clock = std::chrono::steady_clock;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// The mean over the whole test, with any number of ranks.
double evaluate(Transformer& network, const TextWindows& test, const Group& group) {
  const torch::NoGradGuard no_gradients;
  network->eval();
  std::vector<at::Tensor> losses{torch::empty({0})};
  shoal::DataLoader share(
      {.batch_size = 32}, test,
      shoal::EvaluationSampler({.num_replicas = group->getSize(), .rank = group->getRank()}, test.size()));
  for (auto& [characters, next] : share) losses.push_back(losses_of(network->forward(characters), next));
  network->train();
  return shoal::all_gather_samples(group, torch::cat(losses), test.size()).to(at::kDouble).mean().item<double>();
}

/// A rank's training, from its checkpoint to its last step. One thread.
class Training {
 public:
  Training(const Settings& settings, const Text& text, Group group)
      : settings_(settings),
        text_(text),
        group_(std::move(group)),
        parts_of_text_(divide(text, settings.size.context)),
        network_(make_network()),
        ddp_(network_, group_),
        optimizer_(network_->parameters(), torch::optim::AdamWOptions(settings.lr).weight_decay(0.01)),
        loader_({.batch_size = batch_of_rank(), .num_workers = settings.workers}, parts_of_text_.train,
                shoal::DistributedSampler({.num_replicas = group_->getSize(),
                                           .rank = group_->getRank(),
                                           .seed = settings.seed,
                                           .drop_last = true},
                                          parts_of_text_.train.size())),
        report_(settings, group_->getRank() == 0) {
    // Each rank leaves out others than its neighbours do.
    torch::manual_seed(std::int64_t(settings.seed) + group_->getRank());
    parts_.add("model", network_);
    parts_.add("optimizer", optimizer_, *network_);
    parts_.add("loader", loader_);
    parts_.add("progress", progress_);
    parts_.add("vocabulary", [this] { return text_.vocabulary; }, [this](const std::string& saved) { check(saved); });
    parts_.add_random_state("random");
  }

  Outcome run() {
    std::optional<shoal::Checkpoints> checkpoints;
    if (!settings_.checkpoint.empty()) {
      (void)shoal::stop_requested();  // from now on SIGTERM is noted, and ends no rank
      checkpoints.emplace(shoal::CheckpointOptions{.folder = settings_.checkpoint}, group_);
      step_ = checkpoints->load(parts_).value_or(0);
    }
    report_.begin(step_, *network_, group_->getSize(), text_, settings_);
    const Progress before = progress_;
    double test_loss = 0;
    bool is_evaluated = false;
    while (step_ < settings_.steps) {
      loader_.set_epoch(loader_.state_dict().epoch);  // without effect within an epoch
      for (auto& [characters, next] : loader_) {
        learn(characters, next);
        is_evaluated = step_ % settings_.evaluate_every == 0;
        if (is_evaluated) report_.evaluation(step_, progress_, test_loss = evaluate());
        if (checkpoints && step_ % settings_.checkpoint_every == 0) checkpoints->save_async(step_, parts_);
        if (checkpoints && checkpoints->save_if_stopped(step_, parts_))
          return {.network = network_, .step = step_, .stopped = true};
        if (step_ == settings_.steps) break;
      }
    }
    if (checkpoints) checkpoints->wait();
    if (!is_evaluated) report_.evaluation(step_, progress_, test_loss = evaluate());
    const double seconds = progress_.seconds - before.seconds;
    return {.network = network_,
            .step = step_,
            .stopped = false,
            .test_loss = test_loss,
            .tokens_per_second = seconds > 0 ? double(progress_.tokens - before.tokens) / seconds : 0};
  }

 private:
  Transformer make_network() const {
    torch::manual_seed(std::int64_t(settings_.seed));
    return Transformer(std::int64_t(text_.vocabulary.size()), settings_.size, settings_.amp);
  }
  std::int64_t batch_of_rank() const {
    if (settings_.batch_size % group_->getSize() != 0)
      throw std::invalid_argument(
          fmt::format("--batch-size is {}: {} ranks do not divide it", settings_.batch_size, group_->getSize()));
    return settings_.batch_size / group_->getSize();
  }
  void check(const std::string& saved) const {
    if (saved != text_.vocabulary)
      throw std::invalid_argument("--checkpoint is of a text with other characters than --text has");
  }

  void learn(const at::Tensor& characters, const at::Tensor& next) {
    const auto started = Clock::now();
    const double rate = settings_.lr * settings_.schedule.at(step_, settings_.steps);
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate);
    optimizer_.zero_grad();
    const at::Tensor loss = losses_of(ddp_.forward(characters), next).mean();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(network_->parameters(), settings_.clip);
    optimizer_.step();
    ++step_;
    progress_.add(loss.item<double>(), settings_.batch_size * settings_.size.context,
                  std::chrono::duration<double>(Clock::now() - started).count());
    if (progress_.recent_steps == settings_.log_every) report_.step(step_, progress_, rate);
  }

  double evaluate() { return ::evaluate(network_, parts_of_text_.test, group_); }

  const Settings& settings_;
  const Text& text_;
  Group group_;
  Parts parts_of_text_;
  Transformer network_;
  shoal::DistributedDataParallel<Transformer> ddp_;
  torch::optim::AdamW optimizer_;
  shoal::DataLoader<TextWindows> loader_;
  Progress progress_;
  std::int64_t step_ = 0;
  Report report_;
  shoal::CheckpointParts parts_;
};

}  // namespace

Outcome train(const Settings& settings, const Text& text, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return Training(settings, text, group).run();
}
