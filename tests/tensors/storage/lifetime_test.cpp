// What is left of a tensor when a process that has to do with it is killed, wherever it is: nothing but what others
// hold.
#include <ATen/ATen.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <signal.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using test::Forked;

namespace {

using Maker = std::function<at::Tensor()>;

/// Each layout, with elements that can be told from others, shared or not.
const std::map<std::string, Maker>& layouts() {
  static const std::map<std::string, Maker> makers{
      {"strided", [] { return at::arange(12, at::kFloat).reshape({3, 4}); }},
      {"transposed", [] { return at::arange(12, at::kFloat).reshape({3, 4}).t(); }},
      {"expanded", [] { return at::arange(4, at::kFloat).expand({5, 4}); }},
      {"large", [] { return at::full({1 << 20}, 3.0); }},
      {"zero-size", [] { return at::empty({0, 3}); }},
      {"conjugate", [] { return at::ones({3}, at::kComplexFloat).conj(); }},
      {"leaf", [] { return at::ones({2}).requires_grad_(); }},
      {"quantized per tensor", [] { return at::quantize_per_tensor(at::ones({3, 4}), 0.1, 3, at::kQUInt8); }},
      {"quantized per channel",
       [] {
         return at::quantize_per_channel(at::ones({3, 4}), at::full({4}, 0.5, at::kDouble), at::arange(4), 1,
                                         at::kQInt8);
       }},
      {"COO", [] { return at::eye(4).to_sparse(); }},
      {"CSR", [] { return at::eye(4).to_sparse_csr(); }},
      {"CSC", [] { return at::eye(4).to_sparse_csc(); }},
      {"BSR", [] { return at::eye(4).to_sparse_bsr({2, 2}); }},
      {"BSC", [] { return at::eye(4).to_sparse_bsc({2, 2}); }},
      {"nested", [] { return at::_nested_tensor_from_tensor_list({at::ones({2, 3}), at::ones({4, 1})}); }},
      {"read-only", [] { return read_only({.name = "it"}, at::arange(12, at::kFloat)); }},
      {"meta", [] { return at::empty({2, 3}, at::TensorOptions(at::kFloat).device(at::kMeta)); }},
  };
  return makers;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.device().is_meta()) return b.device().is_meta() && a.sizes() == b.sizes();
  if (a.is_nested()) {
    auto x = a.unbind(), y = b.unbind();
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), same);
  }
  if (a.is_quantized()) return at::equal(a.dequantize(), b.dequantize());
  return a.layout() == b.layout() && at::equal(a.to_dense(), b.to_dense());
}

/// Runs `body` for each layout, private and shared before it is sent, and looks whether the heap is as it was.
void for_each_layout(const std::function<void(const Maker&)>& body) {
  for (const auto& [name, make] : layouts())
    for (bool shared : {false, true}) {
      const bool can_be_shared = name != "nested" && name != "meta";
      if (shared && !can_be_shared) continue;
      CAPTURE(name, shared);
      const std::size_t before = heap_bytes_in_use();
      body([&make = make, shared] {
        at::Tensor tensor = make();
        if (shared) share_memory_(tensor);
        return tensor;
      });
      Session::current().reclaim_all();
      CHECK(heap_bytes_in_use() == before);
    }
}

[[noreturn]] void die() {
  ::raise(SIGKILL);
  std::abort();
}

}  // namespace

TEST_CASE("tensor lifetime: a maker killed before it has sent its tensor leaves nothing") {
  for_each_layout([](const Maker& make) {
    Forked maker([&] {
      at::Tensor tensor = make();
      die();
    });
    CHECK(maker.join() == -SIGKILL);
  });
}

TEST_CASE("tensor lifetime: what a killed maker has sent arrives, and stays until its receiver lets go") {
  for_each_layout([](const Maker& make) {
    Queue<at::Tensor> queue(2);
    Forked maker([&] {
      at::Tensor tensor = make();
      queue.put(tensor);
      queue.put(tensor);
      die();
    });
    CHECK(maker.join() == -SIGKILL);
    at::Tensor first = queue.get();
    Session::current().reclaim_all();
    CHECK(same(first, make()));
    at::Tensor second = queue.get();
    first = at::Tensor();
    CHECK(same(second, make()));
  });
}

TEST_CASE("tensor lifetime: a receiver killed while it holds tensors gives up its holds alone") {
  for_each_layout([](const Maker& make) {
    at::Tensor tensor = make();
    Queue<at::Tensor> queue(1);
    queue.put(tensor);
    {
      Forked receiver([&] {
        at::Tensor got = queue.get();
        die();
      });
      CHECK(receiver.join() == -SIGKILL);
    }
    Session::current().reclaim_all();
    CHECK(same(tensor, make()));
  });
}

TEST_CASE("tensor lifetime: what a killed forwarder has passed on arrives from the one that made it") {
  for_each_layout([](const Maker& make) {
    Queue<at::Tensor> there(1), back(1);
    there.put(make());
    Forked forwarder([&] {
      at::Tensor got = there.get();
      back.put(got);
      die();
    });
    CHECK(forwarder.join() == -SIGKILL);
    Session::current().reclaim_all();
    CHECK(same(back.get(), make()));
  });
}

TEST_CASE("tensor lifetime: killed at any marked point of hold, transfer and release, a process leaves nothing") {
  const char* points[] = {"heap.make_live.before_state", "block.add.before_count", "block.drop.after_word",
                          "heap.close.start", "heap.free.before_hint"};
  int killed = 0;
  for (const char* point : points)
    for (int skip : {0, 1, 3})
      for (const char* layout : {"strided", "COO", "quantized per channel", "read-only"}) {
        CAPTURE(point, skip, layout);
        const Maker& make = layouts().at(layout);
        const std::size_t before = heap_bytes_in_use();
        {
          at::Tensor kept = make();
          share_memory_(kept);
          Queue<at::Tensor> there(4), back(4);
          there.put(kept);
          Forked child([&] {
            kill_at(point, skip);
            at::Tensor got = there.get();
            back.put(got);
            back.put(make());
            got = at::Tensor();
          });
          killed += child.join() == -SIGKILL;
          Session::current().reclaim_all();
          CHECK(same(kept, make()));
          // What is in the queue is whole.
          at::Tensor received;
          while (back.qsize() > 0) CHECK(same(back.get(), make()));
        }
        CHECK(heap_bytes_in_use() == before);
      }
  CHECK(killed > 20);
}

TEST_CASE("tensor lifetime: many shared tensors take hardly a descriptor, and their memory comes back") {
  const std::size_t before = heap_bytes_in_use();
  const int count = 100'000 * test::test_scale();  // with a scale of 10: a million
  {
    Queue<at::Tensor> queue(1);
    std::vector<at::Tensor> tensors, received;
    for (int i = 0; i < count; ++i) {
      tensors.push_back(empty_shared({1}, at::kInt).fill_(i));
      queue.put(tensors.back());
      received.push_back(queue.get());
    }
    std::size_t descriptors = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++descriptors;
    CHECK(descriptors < 64);
    REQUIRE(received.size() == tensors.size());
    CHECK(received[std::size_t(count) - 1].item<int>() == count - 1);
    tensors.clear();
    CHECK(received[std::size_t(count) / 2].item<int>() == count / 2);
  }
  CHECK(heap_bytes_in_use() == before);
}
