#include <shoal/internal/ipc/read_only/read_only.h>

#include <ATen/ATen.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <functional>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/tensors/libtorch_version.h"

using namespace shoal;
using shoal::test::kIsOldLibtorch;
using shoal::test::RefusedWrite;

namespace {

at::Tensor weights() {
  at::Tensor tensor = at::arange(6, at::kFloat).reshape({2, 3});
  return read_only({.name = "weights"}, tensor);
}

bool lies_in_view(const at::Tensor& tensor) { return find_read_only(tensor.const_data_ptr()).found; }

void write_by_operation(int, at::Tensor tensor) { tensor.add_(1); }
void write_by_pointer(int, at::Tensor tensor) {
  static_cast<volatile float*>(const_cast<void*>(tensor.const_data_ptr()))[4] = 1;
}
void write_by_pointer_in_a_message(int, Queue<at::Tensor> queue) { write_by_pointer(0, queue.get()); }

double sum_in_rank(int, at::Tensor tensor) {
  if (!is_read_only(tensor)) throw Error("arrived writable");
  return tensor.sum().item<double>();
}

/// The exception by which a child's end reaches its parent.
template <class Failure>
Failure failure_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Failure& failure) {
    return failure;
  }
  throw std::runtime_error("it did not fail as it should");
}

}  // namespace

TEST_CASE("read_only: values, sizes, strides and views stay; all views of the storage are read-only at once") {
  at::Tensor base = at::arange(24, at::kDouble).reshape({4, 6}), expected = base.clone();
  at::Tensor view = base.t().slice(0, 1, 5, 2);
  read_only({.name = "base"}, base);
  CHECK(is_read_only(base));
  CHECK(is_shared(base));
  CHECK(is_read_only(view));
  CHECK(lies_in_view(view));
  CHECK(base.equal(expected));
  CHECK(view.equal(expected.t().slice(0, 1, 5, 2)));
  const void* at = base.const_data_ptr();
  read_only(base);  // once is enough
  CHECK(base.const_data_ptr() == at);
  share_memory_(base);
  CHECK(base.const_data_ptr() == at);
  CHECK_FALSE(is_read_only(expected));
}

TEST_CASE("read_only: operations that would write throw before they do, and name tensor and process") {
  at::Tensor tensor = weights(), other = at::ones({2, 3});
  const std::map<std::string, std::function<void()>> writes{
      {"add_", [&] { tensor.add_(1); }},
      {"fill_", [&] { tensor.fill_(2); }},
      {"zero_", [&] { tensor.zero_(); }},
      {"copy_", [&] { tensor.copy_(other); }},
      {"copy_ to a view", [&] { tensor.t()[1].copy_(at::ones({2})); }},
      {"index_put_", [&] { tensor.index_put_({at::tensor({0})}, at::ones({3})); }},
      {"masked_fill_", [&] { tensor.masked_fill_(tensor > 2, 0); }},
      {"scatter_", [&] { tensor.scatter_(0, at::zeros({1, 3}, at::kLong), at::ones({1, 3})); }},
      {"uniform_", [&] { tensor.uniform_(); }},
      {"out of add", [&] { at::add_out(tensor, other, other); }},
      {"out of matmul", [&] { at::mm_out(tensor, at::ones({2, 2}), other); }},
      {"relu_", [&] { tensor.relu_(); }},
      {"sort out",
       [&] {
         at::Tensor indices = at::empty({2, 3}, at::kLong);
         at::sort_out(tensor, indices, other);
       }},
      {"data_ptr", [&] { (void)tensor.data_ptr(); }},
  };
  for (const auto& [name, write] : writes) {
    CAPTURE(name);
    CHECK_THROWS_AS(write(), RefusedWrite);
  }
  if (!kIsOldLibtorch)
    CHECK_THROWS_WITH(tensor.add_(1), ContainsSubstring("'root'") && ContainsSubstring(std::to_string(::getpid())) &&
                                          ContainsSubstring("read-only tensor 'weights' [2, 3] float") &&
                                          ContainsSubstring("clone()"));
  CHECK(tensor.equal(at::arange(6, at::kFloat).reshape({2, 3})));
  CHECK(tensor.clone().add_(1).sum().item<double>() == 21);
}

TEST_CASE("read_only: an optimizer's step is refused by the parameter's name") {
  torch::nn::Linear linear(3, 2);
  read_only({.name = "net"}, linear);
  torch::optim::SGD optimizer(linear->parameters(), 0.1);
  linear->forward(at::ones({1, 3})).sum().backward();
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring(kIsOldLibtorch ? "" : "'net.weight' [2, 3] float"));
}

TEST_CASE("read_only: modules compute as before, and all their parameters and buffers are read-only") {
  torch::manual_seed(1);
  torch::nn::Sequential convolutions(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                                     torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                                     torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).groups(8)),
                                     torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 8)), torch::nn::MaxPool2d(2));
  torch::nn::Embedding embedding(10, 16);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(16, 16).num_layers(2).bidirectional(true));
  torch::nn::GRU gru(16, 16);
  torch::nn::MultiheadAttention attention(16, 4);
  torch::nn::TransformerEncoderLayer transformer(torch::nn::TransformerEncoderLayerOptions(16, 4));
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({16}));
  torch::nn::Bilinear bilinear(16, 16, 4);
  torch::nn::ConvTranspose1d transposed(torch::nn::ConvTranspose1dOptions(16, 4, 2));
  torch::nn::PReLU prelu;
  const std::vector<torch::nn::Module*> modules{convolutions.get(), embedding.get(),   lstm.get(), gru.get(),
                                                attention.get(),    transformer.get(), norm.get(), bilinear.get(),
                                                transposed.get(),   prelu.get()};
  for (auto* module : modules) module->eval();
  at::Tensor image = at::rand({2, 3, 8, 8}), words = at::randint(0, 10, {5, 2});
  auto compute = [&] {
    torch::NoGradGuard no_grad;
    at::Tensor embedded = embedding->forward(words);
    return std::vector<at::Tensor>{convolutions->forward(image),
                                   embedded,
                                   std::get<0>(lstm->forward(embedded)),
                                   std::get<0>(gru->forward(embedded)),
                                   std::get<0>(attention->forward(embedded, embedded, embedded)),
                                   transformer->forward(embedded),
                                   norm->forward(embedded),
                                   bilinear->forward(embedded, embedded),
                                   transposed->forward(embedded.transpose(1, 2)),
                                   prelu->forward(embedded)};
  };
  const auto before = compute();
  for (auto* module : modules) {
    read_only(*module);
    for (const at::Tensor& parameter : module->parameters()) CHECK(is_read_only(parameter));
    for (const at::Tensor& buffer : module->buffers()) CHECK(is_read_only(buffer));
  }
  const auto after = compute();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CAPTURE(i);
    CHECK(at::allclose(before[i], after[i]));
  }
  // Gradients of read-only parameters are their own.
  norm->forward(at::rand({2, 16})).sum().backward();
  CHECK(norm->weight.grad().defined());
  convolutions->train();
  CHECK_THROWS_WITH(convolutions->forward(image), ContainsSubstring(kIsOldLibtorch ? "" : "read-only tensor '1."));
}

TEST_CASE("read_only: receivers read the same memory and cannot write to it, by each start method") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  const SpawnOptions options{.nprocs = 1, .start_method = method, .fork_despite_threads = true};
  at::Tensor tensor = weights();
  CHECK(spawn(options, sum_in_rank, tensor).at(0) == 15);
  const auto refused = failure_of<ProcessRaised>([&] { spawn(options, write_by_operation, tensor); });
  if (!kIsOldLibtorch) {
    CHECK(refused.exception_type() == "shoal::WriteToReadOnlyTensor");
    CHECK_THAT(refused.exception_message(), ContainsSubstring("'weights' [2, 3] float"));
  }
  const auto killed = failure_of<ProcessExited>([&] { spawn(options, write_by_pointer, tensor); });
  CHECK(killed.signal() == SIGSEGV);
  CHECK(killed.exception_type() == "shoal::WriteToReadOnlyTensor");
  CHECK_THAT(killed.what(), ContainsSubstring("rank 0 (pid ") &&
                                ContainsSubstring("wrote to the read-only tensor 'weights' [2, 3] float at byte 16"));
  CHECK_FALSE(killed.stack_trace().empty());
  CHECK(tensor.equal(at::arange(6, at::kFloat).reshape({2, 3})));
}

TEST_CASE("read_only: a tensor that came in a message is told of too") {
  Queue<at::Tensor> queue(1);
  queue.put(weights());
  const auto killed = failure_of<ProcessExited>([&] { spawn({.nprocs = 1}, write_by_pointer_in_a_message, queue); });
  CHECK_THAT(killed.what(), ContainsSubstring("tensor 'weights' [2, 3] float at byte 16"));
}

TEST_CASE("read_only: what is sent on, and what is sent of it, is read-only as well") {
  at::Tensor tensor = weights();
  Queue<at::Tensor> queue(1);
  queue.put(tensor.t()[1]);
  at::Tensor part = queue.get();
  CHECK(is_read_only(part));
  CHECK(part.equal(at::tensor({1.f, 4.f})));
  queue.put(part);
  tensor = part = at::Tensor();
  at::Tensor kept = queue.get();  // the publisher's is gone
  CHECK(kept.equal(at::tensor({1.f, 4.f})));
  CHECK_THROWS_AS(kept.add_(1), RefusedWrite);
}

TEST_CASE("read_only: a tensor that others have already is refused by name, one that is shared and one's own is not") {
  at::Tensor tensor = at::ones({5});
  share_memory_(tensor);
  {
    Queue<at::Tensor> queue(1);
    queue.put(tensor);
    CHECK_THROWS_WITH(read_only({.name = "late"}, tensor),
                      ContainsSubstring("others have the tensor 'late' [5] float"));
    at::Tensor second = queue.get();
    CHECK_THROWS_AS(read_only(tensor), std::invalid_argument);
  }
  read_only(tensor);
  CHECK(is_read_only(tensor));
  at::Tensor undefined;
  CHECK_THROWS_WITH(read_only(undefined), ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(read_only(at::empty({2}, at::device(at::kMeta))), ContainsSubstring("meta"));
}

TEST_CASE("read_only: sparse, quantized, empty and 0-d tensors, and those with a gradient") {
  at::Tensor sparse = at::eye(4).to_sparse();
  read_only({.name = "graph"}, sparse);
  CHECK(is_read_only(sparse));
  CHECK(sparse.to_dense().equal(at::eye(4)));
  CHECK(at::mm(sparse, at::ones({4, 2})).equal(at::ones({4, 2})));
  const ReadOnlyPlace place = find_read_only(sparse._values().const_data_ptr());
  CHECK(std::string(place.label, place.label_size) == "tensor 'graph.values' [4] float");
  at::Tensor compressed = at::eye(4).to_sparse_csr();
  read_only(compressed);
  CHECK(compressed.matmul(at::ones({4, 2})).equal(at::ones({4, 2})));
  {
    // Their kernels read through data_ptr(), so writing is not refused before it faults.
    test::Forked writer([&] { sparse._values().add_(1); });
    CHECK(writer.join() == -SIGSEGV);
  }
  at::Tensor quantized = at::quantize_per_tensor(at::ones({3, 4}), 0.1, 3, at::kQUInt8);
  read_only(quantized);
  CHECK(quantized.dequantize().equal(at::ones({3, 4})));
  for (at::Tensor tensor : {at::empty({0, 3}), at::scalar_tensor(3.5)}) {
    read_only(tensor);
    CHECK(is_read_only(tensor));
  }
  at::Tensor leaf = at::ones({3}).requires_grad_();
  read_only(leaf);
  leaf.sum().backward();
  CHECK(leaf.requires_grad());
  CHECK_FALSE(is_shared(leaf.grad()));
  at::Tensor lazy = at::_lazy_clone(at::ones({4}));  // copied when it is written to
  read_only(lazy);
  CHECK(lazy.equal(at::ones({4})));
}

TEST_CASE("read_only: with allow_data_ptr a pointer is given out, for reading, to receivers as well") {
  at::Tensor tensor = at::ones({4});
  read_only({.allow_data_ptr = true}, tensor);
  Queue<at::Tensor> queue(1);
  queue.put(tensor);
  at::Tensor got = queue.get();
  CHECK(got.data_ptr<float>()[3] == 1);
  CHECK(tensor.data_ptr() == got.data_ptr());
  test::Forked writer([&] { got.add_(1); });
  CHECK(writer.join() == -SIGSEGV);
  CHECK(tensor.equal(at::ones({4})));
}

TEST_CASE("read_only: its memory is there once for all who read it, and comes back") {
  const std::size_t before = heap_bytes_in_use();
  {
    at::Tensor tensor = at::ones({1 << 20});
    read_only(tensor);
    const Extents& extents = Session::current().heap().extents();
    const std::uint64_t resident = extents.resident();
    CHECK(spawn({.nprocs = 2}, sum_in_rank, tensor).at(1) == 1 << 20);
    CHECK(extents.resident() < resident + (1 << 20));
  }
  CHECK(heap_bytes_in_use() == before);
}
