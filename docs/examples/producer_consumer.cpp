// Two producers make tensors, one consumer adds them up. The tensors cross through one queue, without a copy.
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/shared_memory_scope.h>

#include <string>

// Any plain aggregate of encodable members is a message.
struct Sample {
  std::string producer;
  int number;
  at::Tensor values;
};

constexpr int kSamples = 1000;

void produce(int rank, shoal::Queue<Sample> samples) {
  for (int number = 1; number <= kSamples; ++number) {
    shoal::SharedMemoryScope scope;  // tensors made here are born in shared memory: put() moves a handle
    samples.put({fmt::format("producer {}", rank), number, at::full({64, 64}, double(number))});
  }
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::Queue<Sample> samples(/*capacity=*/16);
  auto producers = shoal::start_processes({.nprocs = 2, .name = "producer"}, produce, samples);
  double sum = 0;
  for (int i = 0; i < 2 * kSamples; ++i) sum += samples.get().values.mean().item<double>();
  producers.join();
  fmt::print("{} samples, sum of their means {}\n", 2 * kSamples, sum);
  return sum == kSamples * (kSamples + 1.0) ? 0 : 1;
}
