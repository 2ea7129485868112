// Tensors on a device between processes. The same cases run on the host double and, where there is one, on a GPU.
#include <ATen/ATen.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/cuda/ipc_collect.h>

#include "tests/support/catch.h"
#include "tests/support/host_double/host_double.h"

using namespace shoal;

namespace {

double sum_and_write(Queue<at::Tensor> in) {
  at::Tensor received = in.get();
  const double sum = received.cpu().sum().item<double>();
  received.fill_(3);
  (void)received.cpu();
  return sum;
}

}  // namespace

TEST_CASE("device ipc: a receiver's tensor is the sender's memory") {
  {
    at::Tensor tensor = at::empty({10, 10}, at::device(c10::Device(host_double::kType, 1)));
    tensor.fill_(2);
    Queue<at::Tensor> queue(4);
    Process<double> process({.name = "receiver"}, sum_and_write, queue);
    process.start();
    queue.put(tensor.select(0, 1));
    CHECK(process.result() == 20);
    CHECK(tensor.cpu().sum().item<double>() == 180 + 30);
  }
  CHECK(wait_until_released(std::chrono::seconds(5)));
  ipc_collect();
  host_double::empty_cache();
}
