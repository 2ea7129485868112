#include <shoal/tensors/share.h>

#include <ATen/ATen.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <thread>

#include "tests/support/catch.h"

using namespace shoal;

TEST_CASE("share_memory_: keeps values, sizes, strides and views, and moves the storage of all views at once") {
  at::Tensor base = at::arange(24, at::kDouble).reshape({4, 6});
  at::Tensor view = base.t().slice(0, 1, 5, 2);
  at::Tensor expected = base.clone();
  CHECK_FALSE(is_shared(base));
  share_memory_(base);
  CHECK(is_shared(base));
  CHECK(is_shared(view));
  CHECK(base.equal(expected));
  base[2][3] = -1.0;
  CHECK(view[1][2].item<double>() == -1.0);
  void* at = base.data_ptr();
  share_memory_(base);  // once is enough
  CHECK(base.data_ptr() == at);
}

TEST_CASE("share_memory_: a leaf's gradient is shared with it") {
  at::Tensor weight = at::ones({3}).requires_grad_();
  weight.sum().backward();
  share_memory_(weight);
  CHECK(is_shared(weight.grad()));
  CHECK(weight.requires_grad());
}

TEST_CASE("share_memory_: empty, 0-d and half tensors are shared as any other") {
  for (at::Tensor tensor :
       {at::empty({0, 3}), at::scalar_tensor(3.5), at::ones({5}, at::kHalf), at::ones({2}, at::kBool)}) {
    at::Tensor before = tensor.clone();
    share_memory_(tensor);
    CHECK(is_shared(tensor));
    CHECK(tensor.equal(before));
  }
}

TEST_CASE("share_memory_: what cannot be shared in place is refused by name") {
  at::Tensor undefined;
  CHECK_THROWS_WITH(share_memory_(undefined), ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(share_memory_(at::empty({2}, at::device(at::kMeta))), ContainsSubstring("meta"));
  at::Tensor zero = at::_efficientzerotensor({3}, at::kFloat);
  CHECK_THROWS_WITH(share_memory_(zero), ContainsSubstring("torch::zeros_like"));
  CHECK_THROWS_WITH(read_only(zero), ContainsSubstring("torch::zeros_like"));
}

TEST_CASE("is_shared: a layout of libtorch's own is not, and unshare leaves it alone") {
  if (!at::globalContext().hasMKLDNN()) return;
  at::Tensor packed = at::rand({2, 3}).to_mkldnn();
  CHECK_FALSE(is_shared(packed));
  CHECK_FALSE(is_read_only(packed));
  CHECK_NOTHROW(unshare(packed));
}

TEST_CASE("share_memory_: resizing a shared storage is an error that says what to do, never a private copy") {
  at::Tensor tensor = at::ones({4}), small = empty_shared({2}), received;
  share_memory_(tensor);
  Queue<at::Tensor> queue(1);
  queue.put(tensor);
  received = queue.get();
  for (at::Tensor each : {tensor, small, received, tensor.slice(0, 1, 3)}) {
    const void* at = each.data_ptr();
    CHECK_THROWS_WITH(each.resize_({1000}), ContainsSubstring(" bytes") && ContainsSubstring("unshare"));
    CHECK(is_shared(each));
    CHECK(each.data_ptr() == at);
  }
  CHECK_THROWS_WITH(at::add_out(small, at::ones({9}), at::ones({9})), ContainsSubstring("shared memory"));
  tensor.resize_({2, 2});  // within what is there
  CHECK(is_shared(tensor));
}

TEST_CASE("SharedMemoryScope: a tensor can be resized until it is sent") {
  at::Tensor tensor, sent;
  {
    SharedMemoryScope scope;
    tensor = at::ones({4}), sent = at::ones({4});
    tensor.resize_({1000});
  }
  CHECK(is_shared(tensor));
  Queue<at::Tensor> queue(1);
  queue.put(sent);
  CHECK_THROWS_WITH(sent.resize_({1000}), ContainsSubstring("shared memory"));
}

TEST_CASE("unshare: a private copy in place, for all views of the storage and for the gradient; others keep theirs") {
  const std::size_t before = heap_bytes_in_use();
  at::Tensor base = at::arange(24, at::kFloat).reshape({4, 6}).requires_grad_(), view = base.detach().t();
  base.sum().backward();
  share_memory_(base);
  {
    Queue<at::Tensor> queue(1);
    queue.put(base);
    at::Tensor other = queue.get();
    unshare(base);
    CHECK_FALSE(is_shared(base));
    CHECK_FALSE(is_shared(view));
    CHECK_FALSE(is_shared(base.grad()));
    CHECK(is_shared(other));
    CHECK(at::equal(base, other));
    view[3][2] = -1;
    CHECK(base[2][3].item<float>() == -1);
    CHECK(other[2][3].item<float>() == 15);
  }
  CHECK(heap_bytes_in_use() == before);
  view.resize_({100, 100});
  unshare(view);  // nothing to do
  at::Tensor sparse = at::eye(3).to_sparse(), published = at::ones({3});
  share_memory_(sparse);
  unshare(sparse);
  CHECK_FALSE(is_shared(sparse));
  read_only(published);
  unshare(published);
  CHECK(published.add_(1).sum().item<float>() == 6);
  {
    SharedMemoryScope scope;  // private means private here too
    at::Tensor born = at::ones({3});
    unshare(born);
    CHECK_FALSE(is_shared(born));
  }
}

TEST_CASE("unshare: a module is private again, tied parameters stay tied") {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 4));
  model->at<torch::nn::LinearImpl>(2).weight = model->at<torch::nn::LinearImpl>(0).weight;
  share_memory_(model);
  unshare(model);
  for (auto& parameter : model->parameters()) CHECK_FALSE(is_shared(parameter));
  for (auto& buffer : model->buffers()) CHECK_FALSE(is_shared(buffer));
  CHECK(model->at<torch::nn::LinearImpl>(2).weight.data_ptr() == model->at<torch::nn::LinearImpl>(0).weight.data_ptr());
}

TEST_CASE("share_memory_: a storage that is to be copied on writing is copied once, and written to afterwards") {
  at::Tensor source = at::ones({4}), lazy = at::_lazy_clone(source);
  share_memory_(lazy);
  lazy.add_(1);
  CHECK(is_shared(lazy));
  CHECK(lazy.sum().item<float>() == 8);
  CHECK(source.sum().item<float>() == 4);
}

TEST_CASE("share_memory_: a module's parameters and buffers are shared, tied ones stay tied") {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 4));
  model->at<torch::nn::LinearImpl>(2).weight = model->at<torch::nn::LinearImpl>(0).weight;
  share_memory_(model);
  CHECK(is_shared(*model));
  for (auto& buffer : model->buffers()) CHECK(is_shared(buffer));
  CHECK(model->at<torch::nn::LinearImpl>(2).weight.data_ptr() == model->at<torch::nn::LinearImpl>(0).weight.data_ptr());
  CHECK(model->forward(at::ones({2, 4})).size(1) == 4);
}

TEST_CASE("empty_shared: sizes, type and requires_grad as asked, and refused for what it cannot make") {
  at::Tensor tensor = empty_shared({2, 3, 4}, at::kLong);
  CHECK(is_shared(tensor));
  CHECK(tensor.sizes() == at::IntArrayRef({2, 3, 4}));
  CHECK(tensor.is_contiguous());
  CHECK(tensor.fill_(7).sum().item<std::int64_t>() == 7 * 24);
  CHECK(empty_shared({2}, at::TensorOptions(at::kFloat).requires_grad(true)).requires_grad());
  const at::Tensor pictures =
      empty_shared({2, 3, 4, 5}, at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast));
  CHECK(pictures.strides() == at::empty({2, 3, 4, 5}, at::MemoryFormat::ChannelsLast).strides());
  CHECK_THROWS_WITH(empty_shared({2}, at::TensorOptions().pinned_memory(true)), ContainsSubstring("pin_memory_"));
  CHECK_THROWS_WITH(empty_shared({2}, at::kQInt8), ContainsSubstring("quantize"));
  CHECK_THROWS(empty_shared({-1}));
  CHECK_THROWS_AS(empty_shared({2}, at::device(at::kMeta)), std::invalid_argument);
}

TEST_CASE("SharedMemoryScope: tensors made inside by this thread are born shared, others are not") {
  at::Tensor inside, nested, of_other_thread;
  {
    SharedMemoryScope scope;
    inside = at::rand({3, 3});
    {
      SharedMemoryScope again;
      nested = inside.matmul(inside);
    }
    std::thread([&] { of_other_thread = at::rand({3}); }).join();
    at::Tensor still = at::ones({2});
    CHECK(is_shared(still));
  }
  CHECK(is_shared(inside));
  CHECK(is_shared(nested));
  CHECK_FALSE(is_shared(of_other_thread));
  CHECK_FALSE(is_shared(at::rand({3})));
}

TEST_CASE(
    "SharedMemoryScope: of all threads, what other threads make meanwhile is shared as well, and not afterwards") {
  at::Tensor of_other, nested, after;
  auto in_thread = [](at::Tensor& made) { std::thread([&] { made = at::rand({3}); }).join(); };
  {
    SharedMemoryScope scope({.all_threads = true});
    in_thread(of_other);
    {
      SharedMemoryScope own, again({.all_threads = true});
    }
    in_thread(nested);
    CHECK(is_shared(at::rand({3})));
  }
  in_thread(after);
  CHECK(is_shared(of_other));
  CHECK(is_shared(nested));
  CHECK_FALSE(is_shared(after));
  CHECK_FALSE(is_shared(at::rand({3})));
}

TEST_CASE("SharedMemoryScope: those of several threads at once do not end each other") {
  // One thread's scope of all threads ends while another's lives, in both orders, and one of a single thread lives on.
  Event first_open, second_open, first_closed, looked;
  bool shared_with_second = false, shared_with_none = true;
  std::thread first([&] {
    SharedMemoryScope scope({.all_threads = true});
    first_open.set();
    second_open.wait();
  });
  std::thread second([&] {
    first_open.wait();
    SharedMemoryScope scope({.all_threads = true});
    second_open.set();
    first_closed.wait();
    std::thread([&] { shared_with_second = is_shared(at::rand({3})); }).join();
    looked.set();
  });
  first.join();
  first_closed.set();
  looked.wait();
  second.join();
  shared_with_none = is_shared(at::rand({3}));
  CHECK(shared_with_second);
  CHECK_FALSE(shared_with_none);
}

TEST_CASE("share_memory_: over the budget it throws, and the tensor is as it was") {
  ::setenv("SHOAL_MEMORY_LIMIT", "32M", 1);
  at::Tensor large = at::ones({20'000'000});
  CHECK_THROWS_AS(share_memory_(large), OutOfSharedMemory);
  ::unsetenv("SHOAL_MEMORY_LIMIT");
  CHECK_FALSE(is_shared(large));
  CHECK(large[19'999'999].item<float>() == 1.0f);
}

TEST_CASE("shared tensor: every rank writes to the same memory, by each start method") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  at::Tensor board = at::zeros({4, 4});
  share_memory_(board);
  auto write_row = [](int rank, at::Tensor tensor) {
    if (!is_shared(tensor)) throw Error("arrived private");
    tensor.select(0, rank).fill_(rank + 1);
  };
  spawn({.nprocs = 4, .start_method = method, .fork_despite_threads = true}, write_row, board);
  for (int rank = 0; rank < 4; ++rank) CHECK(board[rank].eq(rank + 1).all().item<bool>());
}
