// Expandable segments: allocations of pieces, which cross as file descriptors. On CUDA these cases run where
// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True makes libtorch's allocations so; otherwise they run on ordinary
// ones.
#include <ATen/ATen.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct InPieces {
  InPieces() { host_double::use_expandable_segments(true); }
  ~InPieces() { host_double::use_expandable_segments(false); }
};

/// 5 MiB of floats, more than two pieces of 2 MiB.
constexpr std::int64_t kMany = 5 * (1 << 20) / 4;

at::Tensor read_and_add(Queue<at::Tensor> in) {
  at::Tensor received = in.get();
  at::Tensor seen = received.cpu();
  received.add_(1);
  (void)received.cpu();
  return seen;
}

void forward(Queue<at::Tensor> in, Queue<at::Tensor> out, Event done) {
  {
    at::Tensor received = in.get();
    out.put(received);
    received = at::Tensor();
    ipc_collect();
  }
  done.wait();
}

std::size_t open_descriptors() {
  std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::size_t(std::distance(begin(entries), end(entries)));
}

}  // namespace

DEVICE_TEST_CASE("a storage in several pieces of a segment is one memory in both processes") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    InPieces in_pieces;
    const at::Tensor before =
        at::zeros({100'000}, at::kFloat).to(on<On>().device());  // the next one starts inside a piece
    const at::Tensor values = at::arange(kMany, at::kFloat);
    at::Tensor tensor = values.to(on<On>().device());
    Queue<at::Tensor> queue(4);
    Process<at::Tensor> process({.name = "receiver"}, read_and_add, queue);
    process.start();
    queue.put(tensor);
    if (On::kIsDouble) CHECK(device_ipc_statistics().exported_bases == 3);
    CHECK(process.result().equal(values));
    CHECK(tensor.cpu().equal(values + 1));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: pieces with fabric handles cross without descriptors") {
  using On = OnHostDouble;
  {
    InPieces in_pieces;
    host_double::use_fabric_handles(true);
    const at::Tensor values = at::arange(kMany, at::kFloat);
    at::Tensor tensor = values.to(on<On>().device());
    const std::size_t descriptors = open_descriptors();
    Queue<at::Tensor> first(4), second(4);
    Event done;
    first.put(tensor);
    CHECK(open_descriptors() == descriptors);
    Process<void> forwarder({.name = "forwarder"}, forward, first, second, done);
    Process<at::Tensor> third({.name = "third"}, read_and_add, second);
    forwarder.start();
    third.start();
    CHECK(third.result().equal(values));
    CHECK(tensor.cpu().equal(values + 1));
    done.set();
    forwarder.result();
    host_double::use_fabric_handles(false);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE(
    "pieces are opened once for all storages in them, and one descriptor is offered for any number of messages") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    InPieces in_pieces;
    constexpr int kStorages = 200;
    std::vector<at::Tensor> storages;
    for (int i = 0; i < kStorages; ++i) storages.push_back(at::full({1}, float(i)).to(on<On>().device()));
    Queue<at::Tensor> queue(2 * kStorages);
    queue.put(storages[0]);
    const std::size_t descriptors = open_descriptors();
    for (int i = 1; i < 2 * kStorages; ++i) queue.put(storages[std::size_t(i % kStorages)]);
    CHECK(open_descriptors() <= descriptors);
    Process<int> process(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in) {
          std::vector<at::Tensor> kept;
          for (int i = 0; i < 2 * kStorages; ++i) {
            kept.push_back(in.get());
            if (kept.back().cpu().item<float>() != float(i % kStorages)) throw std::runtime_error("another tensor");
          }
          return int(device_ipc_statistics().openings);
        },
        queue);
    process.start();
    CHECK(process.result() <= 2);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("pieces are sent on to a third process, which fetches them from their producer") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    InPieces in_pieces;
    const at::Tensor values = at::arange(kMany, at::kFloat);
    at::Tensor tensor = values.to(on<On>().device());
    Queue<at::Tensor> first(4), second(4);
    Event done;
    Process<void> forwarder({.name = "forwarder"}, forward, first, second, done);
    Process<at::Tensor> third({.name = "third"}, read_and_add, second);
    forwarder.start();
    third.start();
    first.put(tensor);
    CHECK(third.result().equal(values));
    CHECK(tensor.cpu().equal(values + 1));
    done.set();
    forwarder.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: pieces of a segment are kept while a receiver has them, and then given back") {
  using On = OnHostDouble;
  {
    InPieces in_pieces;
    Queue<at::Tensor> queue(4);
    Event go_on;
    queue.put(at::full({kMany}, 2.0f).to(on<On>().device()));
    Process<float> process(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Event go_on) {
          at::Tensor received = in.get();
          go_on.wait();
          return received.cpu().sum().item<float>();
        },
        queue, go_on);
    process.start();
    CHECK(eventually([&] { return queue.empty(); }));
    ipc_collect();
    host_double::empty_cache();
    CHECK(host_double::bytes_of_allocations() == 6u << 20);
    go_on.set();
    CHECK(process.result() == 2.0f * kMany);
    CHECK(wait_until_released(std::chrono::seconds(10)));
    ipc_collect();
    host_double::empty_cache();
    CHECK(host_double::bytes_of_allocations() == 0);
  }
  CHECK(nothing_left<On>());
}
