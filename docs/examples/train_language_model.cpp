// Trains a small transformer to write a text on, character by character: with DistributedDataParallel, mixed precision and
// checkpoints that are written while it goes on. Ranks come from a launcher; alone it is one rank:
//
//     shoal run --nproc-per-node 2 -- build/release/docs/examples/train_language_model --checkpoint run1
//
// The text is what Debian's and Ubuntu's base system has under /usr/share/common-licenses, 260 thousand characters; any
// other does as well. The parts are in train_language_model/:
//
//   settings     the options                     training  what each rank does
//   text         a text as numbers and samples   report    what is counted, and the log
//   transformer  the network                     writing   text of the network's own
//
// and in training/ what it has in common with train_fashion_mnist. docs/training-programs.md says how to use it.
//
// Exit codes: 0 done, or stopped by SIGTERM with a checkpoint; 1 a failure; 2 something is wrong with what was asked for.
#include <fmt/format.h>
#include <shoal/runtime/configure.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/train/launched_ranks.h>

#include "train_language_model/settings.h"
#include "train_language_model/text.h"
#include "train_language_model/training.h"
#include "train_language_model/writing.h"
#include "training/pictures.h"

namespace {

void train_and_write(const Settings& settings) {
  const Text text = read_text(settings.text);
  auto group = shoal::init_process_group();
  Outcome outcome = train(settings, text, group);
  if (group->getRank() != 0) return;
  if (outcome.stopped) {
    fmt::print("stopped after step {}; the same command goes on from there\n", outcome.step);
    return;
  }
  fmt::print("{} steps, test loss {:.4f}, {:.0f} tokens/s\n", outcome.step, outcome.test_loss,
             outcome.tokens_per_second);
  if (settings.sample > 0) fmt::print("\n{}\n", write_on(outcome.network, text, settings));
  draw_pictures(settings.log, settings.plots);
}

int fail(int code, const std::exception& error) {
  fmt::print(stderr, "train_language_model: {}\n", shoal::describe(error));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const auto settings = shoal::configure<Settings>(
      argc, argv,
      {.about = "Trains a small transformer to write a text on. Ranks come from shoal run or another launcher."});
  try {
    train_and_write(settings);
    return 0;
  } catch (const shoal::CheckpointError& error) {
    return fail(2, error);
  } catch (const std::invalid_argument& error) {
    return fail(2, error);
  } catch (const std::exception& error) {
    return fail(1, error);
  }
}
