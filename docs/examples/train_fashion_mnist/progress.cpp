#include "train_fashion_mnist/progress.h"

#include <ATen/Parallel.h>

#include <vector>

void Progress::add(double loss, std::int64_t batch) {
  ++step;
  samples += batch;
  epoch_loss += loss * double(batch);
  epoch_samples += batch;
  recent_loss += loss;
  ++recent_steps;
}

void Progress::begin_epoch(std::int64_t next) {
  epoch = next;
  step = epoch_samples = 0;
  epoch_loss = 0;
}

Report::Report(const Job& job, int rank)
    : settings_(job.settings),
      mode_(name_of(job.mode)),
      ranks_(job.ranks),
      log_(rank == 0 && job.settings.profile == 0 ? job.settings.log : std::filesystem::path()) {}

nlohmann::ordered_json Report::line(const char* event) const { return {{"event", event}, {"mode", mode_}}; }

void Report::begin(std::int64_t step, std::int64_t steps_of_epoch, std::int64_t parameters) {
  auto out = line("begin");
  out["step"] = step;
  out["ranks"] = ranks_;
  out["processes"] = mode_ == "single" ? 1 : settings_.nprocs;
  out["threads"] = at::get_num_threads();
  out["parameters"] = parameters;
  out["epochs"] = settings_.epochs;
  out["steps_of_epoch"] = steps_of_epoch;
  out["batch_size"] = settings_.batch_size;
  out["optimizer"] = name_of(settings_.optimizer);
  out["lr"] = rate_of(settings_);
  out["amp"] = settings_.amp == Amp::bf16 ? "bf16" : "none";
  out["join"] = settings_.join;
  out["seed"] = settings_.seed;
  log_.add(out);
}

void Report::step(Progress& progress, std::int64_t step, std::int64_t samples, double rate) {
  if (progress.recent_steps < settings_.log_every) return;
  auto out = line("step");
  out["epoch"] = progress.epoch;
  out["step"] = step;
  out["samples"] = samples;
  out["seconds"] = progress.seconds;
  out["loss"] = progress.recent_loss / double(progress.recent_steps);
  out["lr"] = rate;
  log_.add(out);
  progress.recent_loss = 0;
  progress.recent_steps = 0;
}

void Report::evaluation(const Progress& progress, std::int64_t step, std::int64_t samples, const Evaluation& found) {
  auto out = line("evaluation");
  out["epoch"] = progress.epoch;
  out["step"] = step;
  out["samples"] = samples;
  out["seconds"] = progress.seconds;
  out["train_loss"] = progress.last_loss;
  out["test_loss"] = found.loss;
  out["test_accuracy"] = found.accuracy;
  std::vector<std::vector<std::int64_t>> confusion;
  for (std::int64_t row = 0; row < found.confusion.size(0); ++row) {
    const at::Tensor counts = found.confusion[row].contiguous();
    confusion.emplace_back(counts.data_ptr<std::int64_t>(), counts.data_ptr<std::int64_t>() + counts.numel());
  }
  out["confusion"] = confusion;
  log_.add(out);
}
