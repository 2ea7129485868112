// How long does a training take until it is good enough? From before any process is started until the first look at the
// test pictures that finds nine of ten classes right, Fashion-MNIST, a convolutional network of 108 k parameters, Adam
// with batches of 32: one process, and two with Hogwild, with DistributedDataParallel and as workers of a DataParallel.
// The peer does the same in Python. Every process draws its pictures from all; a look is due every 15,000 pictures, and
// the first rank takes it.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/mnist.h>
#include <shoal/workers/train/data_parallel.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr std::int64_t kBatch = 32, kPicturesBetweenLooks = 15'000, kMostPictures = 3'000'000;
constexpr double kAsked = 0.9, kLearningRate = 0.001;

struct ConvolutionsImpl : torch::nn::Module {
  torch::nn::Conv2d first{register_module("first", torch::nn::Conv2d(1, 16, 3))};
  torch::nn::Conv2d second{register_module("second", torch::nn::Conv2d(16, 32, 3))};
  torch::nn::Linear third{register_module("third", torch::nn::Linear(32 * 5 * 5, 128))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(128, 10))};
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::max_pool2d(torch::relu(first->forward(input)), 2);
    x = torch::max_pool2d(torch::relu(second->forward(x)), 2);
    return last->forward(torch::relu(third->forward(x.flatten(1))));
  }
};
TORCH_MODULE(Convolutions);

/// All of it in shared memory.
struct Pictures {
  at::Tensor data, target;            // uint8 [60000, 28, 28], int64 [60000]
  at::Tensor test_data, test_target;  // uint8 [10000, 28, 28], int64 [10000]
};

at::Tensor as_input(const at::Tensor& pictures) { return pictures.unsqueeze(1).to(at::kFloat).div_(255); }

struct Batch {
  at::Tensor input, target;
};

Batch draw(const Pictures& pictures, std::int64_t size) {
  const at::Tensor which = torch::randint(pictures.target.size(0), {size}, at::kLong);
  return {as_input(pictures.data.index_select(0, which)), pictures.target.index_select(0, which)};
}

template <class Forward>
bool is_good_enough(const Pictures& pictures, const Forward& forward) {
  const at::NoGradGuard no_grad;
  std::int64_t right = 0;
  const std::int64_t size = pictures.test_target.size(0), part = 1000;
  for (std::int64_t from = 0; from < size; from += part) {
    const at::Tensor guessed = forward(as_input(pictures.test_data.narrow(0, from, part))).argmax(1);
    right += guessed.eq(pictures.test_target.narrow(0, from, part)).sum().template item<std::int64_t>();
  }
  return double(right) >= kAsked * double(size);
}

/// Steps until `is_over` says so at one of the looks. `pictures_of_step`: of all processes together.
template <class Forward, class Optimizer, class IsOver>
void train(const Pictures& pictures, std::int64_t batch, std::int64_t pictures_of_step, const Forward& forward,
           Optimizer& optimizer, const IsOver& is_over) {
  const std::int64_t between = kPicturesBetweenLooks / pictures_of_step;
  for (std::int64_t number = 1; number * pictures_of_step <= kMostPictures; ++number) {
    const Batch drawn = draw(pictures, batch);
    optimizer.zero_grad();
    torch::nll_loss(torch::log_softmax(forward(drawn.input), 1), drawn.target).backward();
    optimizer.step();
    if (number % between == 0 && is_over()) return;
  }
  throw std::runtime_error(
      fmt::format("{} pictures, and not yet {} of the test pictures right", kMostPictures, kAsked));
}

void train_alone(int, const Pictures& pictures, int seed) {
  torch::manual_seed(seed);
  Convolutions net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(kLearningRate));
  const auto forward = [&](const at::Tensor& input) { return net->forward(input); };
  train(pictures, kBatch, kBatch, forward, optimizer, [&] { return is_good_enough(pictures, forward); });
}

void train_hogwild(int rank, const Pictures& pictures, int seed, Convolutions net, shoal::hogwild::Adam optimizer,
                   at::Tensor over) {
  torch::manual_seed(seed + rank);
  optimizer.attach(*net);
  const auto forward = [&](const at::Tensor& input) { return net->forward(input); };
  train(pictures, kBatch, 2 * kBatch, forward, optimizer, [&] {
    if (rank == 0 && is_good_enough(pictures, forward)) over.fill_(1);
    return over.item<std::int64_t>() != 0;
  });
}

void train_ddp(int rank, const Pictures& pictures, int seed, shoal::ShmGroup group) {
  auto process_group = shoal::init_process_group(group, rank);
  torch::manual_seed(seed + rank);
  Convolutions net;
  shoal::DistributedDataParallel<Convolutions> ddp(net, process_group);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(kLearningRate));
  std::vector<at::Tensor> over{torch::zeros({1}, at::kLong)};
  train(
      pictures, kBatch, 2 * kBatch, [&](const at::Tensor& input) { return ddp.forward(input); }, optimizer,
      [&] {
        if (rank == 0 && is_good_enough(pictures, [&](const at::Tensor& input) { return net->forward(input); }))
          over[0].fill_(1);
        process_group->broadcast(over)->wait();
        return over[0].item<std::int64_t>() != 0;
      });
}

/// The loop's own process computes nothing but the loss and the step.
void train_data_parallel(const Pictures& pictures, int seed) {
  torch::manual_seed(seed);
  Convolutions net;
  shoal::DataParallel<Convolutions> parallel(net, {.processes = 2});
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(kLearningRate));
  const auto forward = [&](const at::Tensor& input) { return parallel(input); };
  train(pictures, 2 * kBatch, 2 * kBatch, forward, optimizer,
        [&] { return is_good_enough(pictures, [&](const at::Tensor& input) { return net->forward(input); }); });
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  int rounds = 1;
  bool peers = true;
  std::string only;
  CLI::App app(
      "time until nine of ten test pictures are right: one process, Hogwild, DDP, DataParallel; and in Python");
  app.add_option("--rounds", rounds, "of each way, with other seeds")->check(CLI::PositiveNumber);
  app.add_option("--only", only, "the ways whose names have this: Hogwild");
  app.add_flag("--peers,!--no-peers", peers, "run the peer too");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);

  Pictures pictures;
  const auto shared = [](at::Tensor tensor) {
    shoal::share_memory_(tensor);
    return tensor;
  };
  const auto all = shoal::load_mnist(shoal::kFashionMnistDirectory, shoal::MnistSplit::train);
  const auto test = shoal::load_mnist(shoal::kFashionMnistDirectory, shoal::MnistSplit::test);
  pictures = {shared(all.images), shared(all.labels), shared(test.images), shared(test.labels)};

  const std::string alone = "1 process", hogwild = "2 processes, Hogwild", ddp = "2 processes, DDP",
                    data_parallel = "2 processes, DataParallel";
  shoal::bench::Report report("time_to_accuracy");
  std::map<std::string, std::vector<double>> seconds;
  const auto measure = [&](const std::string& way, const auto& train_it) {
    if (way.find(only) != std::string::npos) seconds[way].push_back(shoal::bench::seconds(train_it));
  };
  for (int round = 0; round < rounds; ++round) {  // in turns, so that all see the same machine
    const int seed = 1000 * round;
    const shoal::SpawnOptions one{.nprocs = 1, .num_threads = 1}, two{.nprocs = 2, .num_threads = 1};
    measure(alone, [&] { shoal::spawn(one, train_alone, pictures, seed); });
    measure(hogwild, [&] {
      torch::manual_seed(seed);
      Convolutions net;
      shoal::share_memory_(net);
      const shoal::hogwild::Adam optimizer(net->parameters(), {.lr = kLearningRate});
      shoal::spawn(two, train_hogwild, pictures, seed, net, optimizer, shared(torch::zeros({1}, at::kLong)));
    });
    measure(ddp, [&] { shoal::spawn(two, train_ddp, pictures, seed, shoal::ShmGroup(2)); });
    measure(data_parallel, [&] { train_data_parallel(pictures, seed); });
  }
  for (const std::string& way : {alone, hogwild, ddp, data_parallel})
    if (seconds.contains(way)) report.add("shoal", way, "s", seconds[way]);
  if (!peers) return 0;
  report.run_peer("workers/time_to_accuracy", {std::to_string(rounds), shoal::kFashionMnistDirectory, only});
  if (seconds.contains(hogwild)) report.ask(hogwild, "median", "python", 1);
}
