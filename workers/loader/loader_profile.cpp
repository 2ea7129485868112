#include <shoal/workers/data/loader_profile.h>

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

std::string LoaderProfile::bottleneck() const {
  const double loop_or_workers = std::min(batches_of_workers, batches_of_loop);
  if (batches_of_copies > 0 && batches_of_copies < loop_or_workers) return "copies";
  // A loop that mostly waits waits for them, whatever they could do on CPUs of their own.
  return batches_of_workers < batches_of_loop || wait > step ? "workers" : "loop";
}

std::string LoaderProfile::to_string() const {
  const auto line = [](const char* what, double seconds) {
    return fmt::format("{:<34}{:>12.3f} ms\n", what, seconds * 1e3);
  };
  std::string text = fmt::format("{} batches, {} workers\n", batches, workers);
  text += line("dataset (in a worker)", dataset);
  text += line("collate (in a worker)", collate);
  text += line("wait for a batch (in the loop)", wait);
  if (copy > 0) text += line("copy to device (beside the loop)", copy);
  text += line("step (in the loop)", step);
  text += line("a batch in all", total);
  text += fmt::format("{:<34}{:>12.1f} batches/s\n", "workers alone could do", batches_of_workers);
  text += fmt::format("{:<34}{:>12.1f} batches/s\n", "the loop alone could do", batches_of_loop);
  if (copy > 0) text += fmt::format("{:<34}{:>12.1f} batches/s\n", "copies alone could do", batches_of_copies);
  text += fmt::format("bottleneck: {}\n", bottleneck());
  return text;
}

std::string WorkerSuggestion::to_string() const {
  std::string text = "workers   batches/s\n";
  for (const Measured& one : measured)
    text += fmt::format("{:>7}{:>12.1f}{}\n", one.workers, one.batches_per_second,
                        one.workers == recommended ? "   <- recommended" : "");
  return text;
}

void detail::conclude(LoaderProfile& profile) {
  const double making = profile.dataset + profile.collate;
  profile.batches_of_workers = making > 0 ? std::max(1, profile.workers) / making : 0;
  profile.batches_of_loop = profile.step > 0 ? 1 / profile.step : 0;
  profile.batches_of_copies = profile.copy > 0 ? 1 / profile.copy : 0;
}

void detail::conclude(WorkerSuggestion& suggestion) {
  constexpr double kGoodEnough = 0.9;
  double best = 0;
  for (const auto& one : suggestion.measured) best = std::max(best, one.batches_per_second);
  for (const auto& one : suggestion.measured)
    if (one.batches_per_second >= kGoodEnough * best) {
      suggestion.recommended = one.workers;
      return;
    }
}

}  // namespace shoal
