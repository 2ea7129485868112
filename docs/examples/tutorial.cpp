// The steps of docs/tutorial.md, a function each.
#include <fmt/format.h>
#include <shoal/shoal.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

double mean_of(at::Tensor values) { return values.mean().item<double>(); }

bool first_process() {
  shoal::Process process({.name = "mean"}, mean_of, torch::arange(5, torch::kDouble));
  process.start();
  double mean = process.result();
  fmt::print("the mean is {}\n", mean);
  return mean == 2;
}

std::string greet(int rank, std::string name) { return fmt::format("rank {} greets {}", rank, name); }

bool several_processes() {
  std::vector<std::string> greetings = shoal::spawn({.nprocs = 3}, greet, std::string("you"));
  for (const std::string& greeting : greetings) fmt::print("{}\n", greeting);
  return greetings.size() == 3 && greetings[2] == "rank 2 greets you";
}

void fill_row(int rank, at::Tensor table) { table[rank].fill_(rank); }

bool shared_tensor() {
  at::Tensor table = torch::zeros({3, 4});
  shoal::share_memory_(table);
  shoal::spawn({.nprocs = 3}, fill_row, table);
  fmt::print("the table's sum is {}\n", table.sum().item<double>());
  return table.sum().item<double>() == 12;
}

void produce(int rank, shoal::Queue<at::Tensor> queue) {
  for (int i = 0; i < 10; ++i) {
    shoal::SharedMemoryScope scope;
    queue.put(torch::full({1000}, rank + 1));
  }
}

bool queue_of_tensors() {
  shoal::Queue<at::Tensor> queue(/*capacity=*/4);
  auto producers = shoal::start_processes({.nprocs = 2}, produce, queue);
  double sum = 0;
  for (int i = 0; i < 20; ++i) sum += queue.get().sum().item<double>();
  producers.join();
  fmt::print("all elements together are {}\n", sum);
  return sum == 30000;
}

void open_shop(int rank) {
  if (rank == 1) throw std::runtime_error("no coffee");
}

bool failure() {
  try {
    shoal::spawn({.nprocs = 3}, open_shop);
  } catch (const shoal::ProcessRaised& error) {
    fmt::print("{}\n", error.what());
    return error.rank() == 1 && error.exception_message() == "no coffee";
  }
  return false;
}

bool pool_of_workers() {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(torch::full({1000}, double(i)));
  shoal::Pool pool({.processes = 2});
  std::vector<double> means = pool.map(mean_of, tensors);
  fmt::print("{} means, the last one is {}\n", means.size(), means.back());
  return means.size() == 100 && means.back() == 99;
}

shoal::TensorDataset<2> make_data() {
  at::Tensor inputs = torch::rand({1000, 4});
  return shoal::tensor_dataset(inputs, inputs.sum(1));
}

bool data_loader() {
  shoal::DataLoader loader({.batch_size = 64, .shuffle = true, .num_workers = 2}, make_data());
  std::int64_t batches = 0, samples = 0;
  for (auto& [inputs, targets] : loader) {
    ++batches;
    samples += inputs.size(0);
  }
  fmt::print("{} batches, {} samples\n", batches, samples);
  return batches == 16 && samples == 1000;
}

struct NetImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
  at::Tensor forward(const at::Tensor& inputs) { return layer->forward(inputs).squeeze(1); }
};
TORCH_MODULE(Net);

double train(int rank, shoal::ShmGroup group, shoal::TensorDataset<2> data) {
  Net net;
  shoal::DistributedDataParallel<Net> ddp(net, shoal::init_process_group(group, rank));
  torch::optim::SGD optimizer(net->parameters(), 0.2);
  shoal::DistributedSampler sampler({.num_replicas = group.world_size(), .rank = rank}, data.size());
  shoal::DataLoader loader({.batch_size = 32, .num_workers = 1}, data, sampler);
  double loss = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& [inputs, targets] : loader) {
      optimizer.zero_grad();
      at::Tensor error = torch::mse_loss(ddp.forward(inputs), targets);
      error.backward();
      optimizer.step();
      loss = error.item<double>();
    }
  }
  return loss;
}

bool training() {
  shoal::TensorDataset<2> data = make_data();
  for (at::Tensor& tensor : data.tensors) shoal::share_memory_(tensor);
  std::vector<double> losses = shoal::spawn({.nprocs = 2}, train, shoal::ShmGroup(2), data);
  fmt::print("losses after 20 epochs: {:.1e}, {:.1e}\n", losses[0], losses[1]);
  return losses[0] < 1e-2 && losses[1] < 1e-2;
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  for (auto step : {first_process, several_processes, shared_tensor, queue_of_tensors, failure, pool_of_workers,
                    data_loader, training})
    if (!step()) return 1;
  return 0;
}
