// What libtorch does with memory inside a SharedMemoryScope besides making tensors.
#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/share.h>
#include <shoal/tensors/shared_memory_scope.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;

TEST_CASE("SharedMemoryScope: convolutions, which take scratch memory in oneDNN, work inside, and free it") {
  const at::Tensor input = at::randn({16, 8, 20, 20}).requires_grad_(),
                   weight = at::randn({32, 8, 5, 5}).requires_grad_();
  const at::Tensor outside = at::conv2d(input, weight);
  outside.sum().backward();
  const at::Tensor expected = weight.grad().clone();
  input.mutable_grad().reset();
  weight.mutable_grad().reset();
  const std::size_t before = heap_bytes_in_use();
  for (int i = 0; i < 3; ++i) {
    at::Tensor inside;
    {
      const SharedMemoryScope scope;
      inside = at::conv2d(input, weight);
      inside.sum().backward();
    }
    CHECK(is_shared(inside));
    CHECK(is_shared(weight.grad()));
    CHECK(at::allclose(inside, outside, 1e-4, 1e-4));
    CHECK(at::allclose(weight.grad(), expected, 1e-3, 1e-3));
    input.mutable_grad().reset();
    weight.mutable_grad().reset();
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("SharedMemoryScope: raw memory is freed inside and outside, wherever it was allocated") {
  {
    const SharedMemoryScope scope;
  }  // from the first one on it is shoal's
  c10::Allocator& own = *c10::GetCPUAllocator();
  const std::size_t before = heap_bytes_in_use();
  void* const outside = own.raw_allocate(5000);
  void *inside = nullptr, *also_inside = nullptr;
  {
    const SharedMemoryScope scope;
    inside = own.raw_allocate(5000);
    also_inside = own.raw_allocate(100);
    own.raw_deallocate(outside);
    own.raw_deallocate(also_inside);
  }
  CHECK(heap_bytes_in_use() >= before + 5000);
  std::memset(inside, 1, 5000);
  own.raw_deallocate(inside);
  CHECK(heap_bytes_in_use() == before);
  own.raw_deallocate(own.raw_allocate(0));
}

TEST_CASE("SharedMemoryScope: what is born shared is not to be copied on writing, which would make it private") {
  at::Tensor born;
  {
    const SharedMemoryScope scope;
    born = at::ones({4});
  }
  CHECK_THROWS_AS(at::_lazy_clone(born), c10::Error);  // as of any memory that is not libtorch's own
  born.add_(1);
  CHECK(is_shared(born));
  CHECK(born.sum().item<float>() == 8);
}

TEST_CASE("SharedMemoryScope: many threads make and free tensors, also each other's") {
  std::vector<std::vector<at::Tensor>> made(4);
  const std::size_t before = heap_bytes_in_use();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < made.size(); ++i)
      threads.emplace_back([&, i] {
        const SharedMemoryScope scope;
        std::vector<at::Tensor> own;
        for (int k = 0; k < 200; ++k) own.push_back(at::full({1 + k}, double(i) * 1000 + k));
        for (int k = 0; k < 200; ++k)
          REQUIRE(own[std::size_t(k)].sum().item<double>() == (double(i) * 1000 + k) * (1 + k));
        made[i] = std::move(own);
      });
    for (std::thread& thread : threads) thread.join();
    std::rotate(made.begin(), made.begin() + 1, made.end());
  }
  made.clear();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("SharedMemoryScope: a forked child frees what it inherits, and its parent keeps it") {
  at::Tensor born;
  {
    const SharedMemoryScope scope;
    born = at::full({1000}, 7);
  }
  test::Forked child([&] {
    if (!is_shared(born) || born.sum().item<double>() != 7000) throw std::runtime_error("not what the parent made");
    born.reset();
    const SharedMemoryScope scope;
    if (!is_shared(at::ones({3}))) throw std::runtime_error("not born shared");
  });
  CHECK(child.join() == 0);
  CHECK(is_shared(born));
  CHECK(born.sum().item<double>() == 7000);
}
