#include "train_language_model/report.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <numbers>

void Progress::add(double loss, std::int64_t step_tokens, double step_seconds) {
  tokens += step_tokens;
  seconds += step_seconds;
  recent_loss += loss;
  ++recent_steps;
  recent_seconds += step_seconds;
  recent_tokens += step_tokens;
}

Report::Report(const Settings& settings, bool speaks)
    : speaks_(speaks), log_(speaks ? settings.log : std::filesystem::path()) {}

void Report::begin(std::int64_t step, const torch::nn::Module& network, int ranks, const Text& text,
                   const Settings& settings) {
  if (!speaks_) return;
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : network.parameters()) parameters += parameter.numel();
  fmt::print("{} parameters, {} characters of {} kinds; {} ranks go on after step {}\n", parameters,
             text.characters.numel(), text.vocabulary.size(), ranks, step);
  std::fflush(stdout);
  log_.add({{"event", "begin"},
            {"mode", "ddp"},
            {"step", step},
            {"ranks", ranks},
            {"parameters", parameters},
            {"steps", settings.steps},
            {"batch_size", settings.batch_size},
            {"context", settings.size.context},
            {"lr", settings.lr},
            {"amp", settings.amp == Amp::bf16 ? "bf16" : "none"},
            {"seed", settings.seed}});
}

void Report::step(std::int64_t step, Progress& progress, double rate) {
  const double loss = progress.recent_loss / double(progress.recent_steps);
  const double speed = double(progress.recent_tokens) / progress.recent_seconds;
  progress.recent_loss = progress.recent_seconds = 0;
  progress.recent_steps = progress.recent_tokens = 0;
  if (!speaks_) return;
  fmt::print("step {:6}  loss {:.4f}  {:8.0f} tokens/s\n", step, loss, speed);
  std::fflush(stdout);
  log_.add({{"event", "step"},
            {"mode", "ddp"},
            {"step", step},
            {"tokens", progress.tokens},
            {"seconds", progress.seconds},
            {"loss", loss},
            {"lr", rate},
            {"tokens_per_second", speed}});
}

void Report::evaluation(std::int64_t step, const Progress& progress, double loss) {
  if (!speaks_) return;
  fmt::print("step {:6}  test loss {:.4f}, {:.3f} bits a character\n", step, loss, loss / std::numbers::ln2);
  std::fflush(stdout);
  log_.add({{"event", "evaluation"},
            {"mode", "ddp"},
            {"step", step},
            {"tokens", progress.tokens},
            {"seconds", progress.seconds},
            {"test_loss", loss}});
}
