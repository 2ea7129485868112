// Trains a small convolutional network on Fashion-MNIST three times: in one process, with two processes and
// DistributedDataParallel, with two processes and Hogwild. The parts are in train_fashion_mnist/:
//
//   settings    the options                 network     the model
//   training    what one rank does          checkpoint  saving and going on
//   run         the parent's side of a run, and the table
//
// Exit codes: 0 done, 1 a rank failed, 2 something is wrong with what was asked for.
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/configure.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/mnist.h>
#include <signal.h>

#include "train_fashion_mnist/checkpoint.h"
#include "train_fashion_mnist/run.h"
#include "train_fashion_mnist/settings.h"

namespace {

int fail(int code, const std::exception& error) {
  fmt::print(stderr, "train_fashion_mnist: {}\n", shoal::describe(error));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const auto settings = shoal::configure<Settings>(
      argc, argv,
      {.about = "Trains a small convolutional network on Fashion-MNIST: in one process, with DistributedDataParallel, "
                "with Hogwild, or all three one after the other."});
  catch_interrupts();
  try {
    check_runs(settings);
    auto train_set = shoal::load_mnist(settings.data, shoal::MnistSplit::train);
    auto test_set = shoal::load_mnist(settings.data, shoal::MnistSplit::test);
    // Once, here: every rank and every loader worker of all runs maps this memory.
    for (at::Tensor* tensor : {&train_set.images, &train_set.labels, &test_set.images, &test_set.labels})
      shoal::share_memory_(*tensor);
    std::vector<RunResult> results;
    for (const std::string& mode : modes_of(settings)) results.push_back(run(mode, settings, train_set, test_set));
    print_results(results);
    return 0;
  } catch (const Interrupted&) {
    fmt::print(stderr, "interrupted\n");
    // As shells expect of a program that Ctrl-C ended.
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);
    return 130;
  } catch (const shoal::DatasetError& error) {
    return fail(2, error);
  } catch (const CheckpointError& error) {
    return fail(2, error);
  } catch (const std::invalid_argument& error) {
    return fail(2, error);
  } catch (const std::exception& error) {
    return fail(1, error);
  }
}
