// DDP's options: which parameters it takes care of, how buffers are kept equal, what a step may look like.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_options_test {

namespace {

/// One step: the gradients by DDP are the averages of what one model has of every rank's batch.
template <class Net>
void require_averages(DistributedDataParallel<Net>& ddp, Net& net, Net& reference, int rank, int world, int step) {
  net->zero_grad();
  reference->zero_grad();
  loss_of(ddp(batch_of(rank, step))).backward();
  for (int other = 0; other < world; ++other) (loss_of(reference(batch_of(other, step))) / world).backward();
  require_same_gradients(*net, *reference, fmt::format("step {}", step));
}

using Tensors = torch::autograd::variable_list;

/// A segment whose forward pass is run again in the backward pass, as a pass of its own inside that one.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, torch::nn::Linear segment) {
    const torch::NoGradGuard no_grad;
    context->save_for_backward({x});
    context->saved_data["segment"] = reinterpret_cast<std::int64_t>(segment.get());
    return torch::tanh(segment->forward(x));
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    auto* segment = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["segment"].toInt());
    at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const torch::AutoGradMode with_grad(true);
    torch::autograd::backward({torch::tanh(segment->forward(x))}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

/// If it `fails`, the backward pass ends here by an exception, before any parameter has got its gradient.
at::Tensor failing_once(at::Tensor result, bool& fails) {
  if (std::exchange(fails, false))
    result.register_hook([](const at::Tensor&) { throw std::runtime_error("this rank's own fault"); });
  return result;
}

struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(bool checkpoint)
      : first(register_module("first", torch::nn::Linear(6, 6))),
        middle(register_module("middle", torch::nn::Linear(6, 6))),
        unused(register_module("unused", torch::nn::Linear(2, 2))),
        last(register_module("last", torch::nn::Linear(6, 3))),
        checkpoint(checkpoint) {
    to(at::kDouble);
  }
  at::Tensor segment(const at::Tensor& x) { return checkpoint ? Checkpoint::apply(x, middle) : torch::tanh(middle(x)); }
  at::Tensor forward(const at::Tensor& x) {
    return failing_once(last(segment(segment(first(x)))), fails);  // `middle` twice
  }
  torch::nn::Linear first, middle, unused, last;
  bool checkpoint, fails = false;
};
TORCH_MODULE(Deep);

/// Gradients of some steps beside those of one process, which has the same module without checkpoints.
std::string static_graph(int rank, ShmGroup group, bool checkpoint, std::int64_t bucket_bytes, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Deep net(checkpoint), reference(false);
  DistributedDataParallel<Deep> ddp({.bucket_bytes = bucket_bytes, .first_bucket_bytes = 100, .static_graph = true},
                                    net, process_group);
  copy_values(*net, *reference);
  for (int step = 0; step < 4; ++step) {
    require_averages(ddp, net, reference, rank, group.world_size(), step);
    require(!net->unused->weight.grad().defined(), "an unused parameter got a gradient");
  }
  return "went through";
}

/// What may come before a static graph is learnt: a pass that is not gone back through, and a backward pass that an
/// exception ends before the module's first gradient. And whether that pass is of two forward passes.
std::string first_steps(int rank, ShmGroup group, bool two_passes, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Deep net(false), reference(false);
  DistributedDataParallel<Deep> ddp({.bucket_bytes = 100, .first_bucket_bytes = 100, .static_graph = true}, net,
                                    process_group);
  copy_values(*net, *reference);
  ddp(batch_of(rank, 90));
  ddp(batch_of(rank, 91));
  std::string said;
  net->fails = true;
  try {
    loss_of(ddp(batch_of(rank, 92))).backward();
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  require(said.find("own fault") != std::string::npos, "what came out of backward(): " + said);
  for (int step = 0; step < 4; ++step) {
    if (!two_passes) {
      require_averages(ddp, net, reference, rank, group.world_size(), step);
      continue;
    }
    net->zero_grad();
    reference->zero_grad();
    const at::Tensor one = ddp(batch_of(rank, 2 * step)), two = ddp(batch_of(rank, 2 * step + 1));
    (loss_of(one) + loss_of(two)).backward();
    for (int other = 0; other < group.world_size(); ++other)
      for (int batch : {0, 1}) (loss_of(reference(batch_of(other, 2 * step + batch))) / group.world_size()).backward();
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return "went through";
}

/// One checkpointed segment, of parameters that nothing else uses: no option is needed.
struct OneSegmentImpl : torch::nn::Module {
  explicit OneSegmentImpl(bool checkpoint) : checkpoint(checkpoint) { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = first(x);
    return last(checkpoint ? Checkpoint::apply(inner, middle) : torch::tanh(middle(inner)));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 6))};
  torch::nn::Linear middle{register_module("middle", torch::nn::Linear(6, 6))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(6, 3))};
  bool checkpoint;
};
TORCH_MODULE(OneSegment);

std::string one_segment(int rank, ShmGroup group, std::int64_t bucket_bytes, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  OneSegment net(true), reference(false);
  DistributedDataParallel<OneSegment> ddp({.bucket_bytes = bucket_bytes, .first_bucket_bytes = 100}, net,
                                          process_group);
  copy_values(*net, *reference);
  for (int step = 0; step < 4; ++step) {
    require_averages(ddp, net, reference, rank, group.world_size(), step);
  }
  return "went through";
}

/// One layer under two names, a frozen parameter, a batch norm.
struct TiedImpl : torch::nn::Module {
  TiedImpl()
      : layer(register_module("layer", torch::nn::Linear(6, 6))),
        again(register_module("again", layer)),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        frozen(register_parameter("frozen", torch::full({6}, 0.5), /*requires_grad=*/false)),
        own(register_parameter("own", torch::ones({6}))) {
    to(at::kDouble);
    frozen = named_parameters(false)["frozen"];
    own = named_parameters(false)["own"];
  }
  at::Tensor forward(const at::Tensor& x) {
    return failing_once(again(torch::tanh(norm(layer(x)) * frozen)) * own, fails);
  }
  bool fails = false;
  torch::nn::Linear layer, again;
  torch::nn::BatchNorm1d norm;
  at::Tensor frozen, own;
};
TORCH_MODULE(Tied);

void step_alone(Tied& reference, int step, int world, int batches = 1) {
  reference->zero_grad();
  for (int rank = 0; rank < world; ++rank)
    for (int batch = 0; batch < batches; ++batch)
      (loss_of(reference(batch_of(rank, step * batches + batch))) / world).backward();
}

/// Two forward passes before the one backward pass of both.
std::string tied_and_frozen(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Tied net, reference;
  net->frozen.detach().fill_(rank + 1);
  DistributedDataParallel<Tied> ddp({.bucket_bytes = 200, .first_bucket_bytes = 200}, net, process_group);
  require(net->frozen[0].item<double>() == 1, "frozen parameters do not begin as rank 0's");
  copy_values(*net, *reference);
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    const at::Tensor one = ddp(batch_of(rank, 2 * step)), two = ddp(batch_of(rank, 2 * step + 1));
    (loss_of(one) + loss_of(two)).backward();
    step_alone(reference, step, group.world_size(), 2);
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
    require(!net->frozen.grad().defined(), "a frozen parameter got a gradient");
  }
  return "went through";
}

/// The gradients of a delayed parameter, which is used outside of the module's forward(), too; and of an ignored one.
std::string delayed_and_ignored(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Tied net, reference;
  net->norm->weight.detach().fill_(rank + 1);
  DistributedDataParallel<Tied> ddp({.ignored = {"norm.weight", "norm.running_mean"}, .delayed = {"own"}}, net,
                                    process_group);
  require(net->norm->weight[0].item<double>() == rank + 1, "an ignored parameter was made equal");
  net->norm->weight.detach().fill_(1);  // now the ranks' gradients can be compared with one process's
  copy_values(*net, *reference);
  for (int step = 0; step < 3; ++step) {
    net->zero_grad(step != 1);
    (loss_of(ddp(batch_of(rank, step))) + net->own.sum() * rank).backward();
    reference->zero_grad();
    at::Tensor of_ignored;
    for (int other = 0; other < group.world_size(); ++other) {
      ((loss_of(reference(batch_of(other, step))) + reference->own.sum() * other) / group.world_size()).backward();
      if (other == rank)
        of_ignored = torch::autograd::grad({loss_of(reference(batch_of(other, step)))}, {reference->norm->weight})[0];
    }
    reference->norm->weight.mutable_grad() = of_ignored;
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return "went through";
}

/// A backward pass that an exception ends, on all ranks, before the first gradient of the module comes.
std::string delayed_after_failure(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Tied net, reference;
  DistributedDataParallel<Tied> ddp({.delayed = {"own"}}, net, process_group);
  copy_values(*net, *reference);
  for (int step = 0; step < 4; ++step) {
    if (step == 1) {
      net->fails = true;
      try {
        loss_of(ddp(batch_of(rank, 90))).backward();
        return "nothing was thrown";
      } catch (const std::runtime_error&) {
      }
      for (const auto& buffer : reference->buffers()) buffer.copy_(torch::zeros_like(buffer));
      for (const auto& buffer : net->buffers()) buffer.copy_(torch::zeros_like(buffer));
    }
    net->zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    step_alone(reference, step, group.world_size());
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return "went through";
}

/// A module with a buffer that its forward pass leaves alone, and can be told to fail in.
struct BufferedImpl : torch::nn::Module {
  BufferedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) {
    if (std::exchange(fails, false)) throw std::runtime_error("a bad sample");
    return layer(x);
  }
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 3))};
  at::Tensor kept{register_buffer("kept", torch::ones({4}))};
  bool fails = false;
};
TORCH_MODULE(Buffered);

/// Rank 0's forward pass fails once, and its next one's mean of buffers meets the other rank's gradients. Until all go on,
/// and beyond, the buffers' mean stays what it was.
std::string buffers_after_failure(int rank, ShmGroup group, BufferSync sync) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Buffered net;
  DistributedDataParallel<Buffered> ddp({.buffer_sync = sync}, net, process_group);
  net->kept = net->named_buffers()["kept"];
  net->kept.fill_(rank == 0 ? 1 : 3);
  int done = 0;
  for (int step = 0; done < 4; ++step) {
    if (step == 30) return "it never went on";
    if (step == 2) net->fails = rank == 0;
    try {
      net->zero_grad();
      loss_of(ddp(batch_of(rank, step))).backward();
      ++done;
    } catch (const std::exception&) {
      require(step >= 2, "the first steps");
    }
    require(net->kept.eq(2).all().item<bool>(),
            fmt::format("step {}: the buffer is {}", step, net->kept[0].item<double>()));
  }
  return "went through";
}

std::string sparse_and_delayed(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 4).sparse(true)));
  try {
    DistributedDataParallel<torch::nn::Sequential> ddp({.delayed = {"0.weight"}}, net, process_group);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

std::string refused(int rank, ShmGroup group, DistributedDataParallelOptions options) {
  auto process_group = init_process_group(group, rank);
  Tied net;
  try {
    DistributedDataParallel<Tied> ddp(options, net, process_group);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

/// Rank's buffers after a forward pass, and after the next one has begun.
std::vector<at::Tensor> buffers(int rank, ShmGroup group, BufferSync sync) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Tied net;
  DistributedDataParallel<Tied> ddp({.buffer_sync = sync}, net, process_group);
  std::vector<at::Tensor> seen;
  ddp.forward(batch_of(rank, 0) + rank).sum().backward();
  seen.push_back(net->norm->running_mean.clone());
  seen.push_back(net->norm->num_batches_tracked.clone());
  // A batch of zeros leaves 0.9 of what there was when it began, plus what the layers make of zeros.
  const at::Tensor zeros = torch::zeros({8, 6}, at::kDouble);
  const at::Tensor of_zeros = net->layer(zeros).mean(0).detach();
  ddp.forward(zeros).sum().backward();
  seen.push_back((net->norm->running_mean - 0.1 * of_zeros) / 0.9);
  return seen;
}

struct PhasedImpl : torch::nn::Module {
  explicit PhasedImpl(int rank)
      : layer(register_module("layer", torch::nn::Linear(6, 2))),
        single(register_buffer("single", torch::full({3}, c10::complex<float>(rank, 2 - rank), at::kComplexFloat))),
        twice(register_buffer("twice", single.to(at::kComplexDouble).conj())) {}
  at::Tensor forward(const at::Tensor& input) { return layer->forward(input); }
  torch::nn::Linear layer;
  at::Tensor single, twice;
};
TORCH_MODULE(Phased);

std::vector<at::Tensor> complex_buffers(int rank, ShmGroup group, BufferSync sync) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Phased net(rank);
  DistributedDataParallel<Phased> ddp({.buffer_sync = sync, .init_sync = false}, net, process_group);
  ddp.forward(torch::ones({2, 6})).sum().backward();
  return {net->single, net->twice.resolve_conj()};
}

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : rows(register_module("rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 4).sparse(sparse)))),
        bags(register_module(
            "bags", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(20, 4).sparse(sparse).mode(torch::kSum)))),
        by_hand(register_parameter("by_hand", torch::randn({20, 4}))),
        last(register_module("last", torch::nn::Linear(4, 2))),
        sparse(sparse) {
    to(at::kDouble);
    by_hand = named_parameters(false)["by_hand"];
  }
  at::Tensor forward(const at::Tensor& words) {
    return last(rows(words).sum(1) + bags(words) + torch::embedding(by_hand, words, -1, false, sparse).sum(1));
  }
  torch::nn::Embedding rows;
  torch::nn::EmbeddingBag bags;
  at::Tensor by_hand;
  torch::nn::Linear last;
  bool sparse;
};
TORCH_MODULE(Words);

/// Sparse gradients beside the dense ones of one process, also accumulated over two batches; other rows on each rank.
std::string sparse(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(rank);
  Words net(true), reference(false);
  DistributedDataParallel<Words> ddp({.sparse = {"by_hand"}}, net, process_group);
  copy_values(*net, *reference);
  const auto words = [](int of_rank, int step) {
    torch::manual_seed(100 * step + of_rank);
    return torch::randint(0, 20, {3, 4});
  };
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::SGD of_reference(reference->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    of_reference.zero_grad();
    if (step == 2) {
      auto local = ddp.no_sync();
      loss_of(ddp(words(rank, 50))).backward();
    }
    loss_of(ddp(words(rank, step))).backward();
    require(net->rows->weight.grad().is_sparse() && net->by_hand.grad().is_sparse(), "a gradient became dense");
    for (int other = 0; other < group.world_size(); ++other) {
      if (step == 2) (loss_of(reference(words(other, 50))) / group.world_size()).backward();
      (loss_of(reference(words(other, step))) / group.world_size()).backward();
    }
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
    optimizer.step();
    of_reference.step();
  }
  return "went through";
}

/// Whether this rank keeps its own parameters, and how many buckets are reduced in a step.
std::pair<bool, int> start_and_skip(int rank, ShmGroup group, bool init_sync, bool skip) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(rank);
  Deep net(false), before(false);
  copy_values(*net, *before);
  DistributedDataParallel<Deep> ddp({.bucket_bytes = 1,  // each parameter has its own
                                     .first_bucket_bytes = 1,
                                     .find_unused_parameters = true,
                                     .init_sync = init_sync,
                                     .skip_all_reduce_unused_params = skip},
                                    net, process_group);
  int reduced = 0;
  ddp.register_comm_hook([&reduced, hook = all_reduce_hook(process_group)](GradBucket& bucket) {
    ++reduced;
    return hook(bucket);
  });
  const bool own = torch::equal(net->first->weight, before->first->weight);
  loss_of(ddp(batch_of(rank, 0))).backward();
  require(net->first->weight.grad().defined() && !net->unused->weight.grad().defined(), "which gradients there are");
  return {own, reduced};
}

/// Gradients of a bfloat16 module that are not added up in bfloat16, where 256 and 1 and 1 and 1 are 256. In
/// float they are 259, which is rounded to 260.
std::string reduced_in_float(int rank, ShmGroup group, bool in_float) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear net(2, 2);
  net->to(at::kBFloat16);
  DistributedDataParallel<torch::nn::Linear> ddp(net, process_group);
  if (in_float) ddp.register_comm_hook(compress_hook(process_group, at::kFloat));
  ddp(torch::ones({1, 2}, at::kBFloat16)).sum().mul(rank == 0 ? 1024 : 4).backward();
  require(net->bias.grad().scalar_type() == at::kBFloat16, "the gradients are no bfloat16s");
  require(net->bias.grad().equal(torch::full({2}, 260, at::kBFloat16)), "the mean of the gradients");
  return "went through";
}

/// A bfloat16 module's gradients are reduced in bfloat16; its float copies take small steps that bfloat16 would lose.
std::string half_with_masters(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  torch::nn::Linear net(4, 4);
  net->to(at::kBFloat16);
  DistributedDataParallel<torch::nn::Linear> ddp(net, process_group);
  FloatMasters masters(net->parameters());
  torch::optim::SGD optimizer(masters.parameters(), torch::optim::SGDOptions(1e-3));
  const at::Tensor begin = net->bias.detach().clone();
  for (int step = 0; step < 50; ++step) {
    ddp(torch::ones({2, 4}, at::kBFloat16)).sum().mul(0.25 * (1 + rank)).backward();
    require(net->bias.grad().scalar_type() == at::kBFloat16, "the gradients are no bfloat16s");
    masters.take_gradients();
    // 2 rows of 0.25 and, with two ranks, 0.5: on average 0.75.
    require(masters.parameters()[1].grad().equal(torch::full({4}, 0.75)), "the mean of the gradients");
    optimizer.step();
    masters.give_parameters();
  }
  const at::Tensor moved = masters.parameters()[1].detach() - begin.to(at::kFloat);
  require((moved + 50 * 0.75e-3).abs().max().item<float>() < 1e-5, "a small step was lost");
  require(net->bias.equal(masters.parameters()[1].to(at::kBFloat16)), "the module has not the rounded copies");
  return "went through";
}

}  // namespace

TEST_CASE("DDP: a static graph may use parameters several times, in checkpointed segments, or not at all") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (bool checkpoint : {false, true})
    for (std::int64_t bucket_bytes : {100, 1 << 20})
      for (auto& said : spawn({.nprocs = 2}, static_graph, ShmGroup(2), checkpoint, bucket_bytes, progress))
        CHECK(said == "went through");
}

TEST_CASE("DDP: a static graph is learnt by its first backward pass, whatever came before") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (bool two_passes : {false, true})
    for (auto& said : spawn({.nprocs = 2}, first_steps, ShmGroup(2), two_passes, progress))
      CHECK(said == "went through");
}

TEST_CASE("DDP: one checkpointed segment needs no option") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (std::int64_t bucket_bytes : {100, 1 << 20})
    for (auto& said : spawn({.nprocs = 2}, one_segment, ShmGroup(2), bucket_bytes, progress))
      CHECK(said == "went through");
}

TEST_CASE("DDP: shared parameters count once, frozen ones stay, and forward passes may come before a backward pass") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 2}, tied_and_frozen, ShmGroup(2), progress)) CHECK(said == "went through");
}

TEST_CASE("DDP: delayed gradients are reduced at the end, ignored parameters never") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 2}, delayed_and_ignored, ShmGroup(2), progress)) CHECK(said == "went through");
  const auto said = [](const DistributedDataParallelOptions& options) {
    return spawn({.nprocs = 1}, refused, ShmGroup(1), options)[0];
  };
  CHECK_THAT(said({.ignored = {"nobody"}}),
             ContainsSubstring("ignored: the module has no parameter or buffer named nobody"));
  CHECK_THAT(said({.delayed = {"norm.running_mean"}}), ContainsSubstring("delayed: the module has no parameter"));
  CHECK_THAT(spawn({.nprocs = 1}, sparse_and_delayed, ShmGroup(1))[0],
             ContainsSubstring("delayed: 0.weight has sparse gradients"));
}

TEST_CASE("DDP: delayed gradients are reduced again after a backward pass that an exception has ended") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 2}, delayed_after_failure, ShmGroup(2), progress)) CHECK(said == "went through");
}

TEST_CASE("DDP: buffers whose mean could not be made are what they were") {
  for (const auto sync : {BufferSync::average_before, BufferSync::average_after})
    for (auto& said : spawn({.nprocs = 2}, buffers_after_failure, ShmGroup(2), sync)) CHECK(said == "went through");
}

TEST_CASE("DDP: buffers are rank 0's or the mean, before or after a forward pass") {
  const auto run = [](BufferSync sync) { return spawn({.nprocs = 2}, buffers, ShmGroup(2), sync); };
  const auto before = run(BufferSync::broadcast_before);
  const at::Tensor own0 = before[0][0], own1 = before[1][0], mean = (own0 + own1) / 2;
  REQUIRE(!torch::allclose(own0, own1));
  for (auto& rank : before) CHECK(torch::allclose(rank[2], own0));
  for (auto& rank : run(BufferSync::broadcast_after)) {
    CHECK(torch::allclose(rank[0], own0));
  }
  const auto averaged = run(BufferSync::average_before);
  for (int rank : {0, 1}) {
    CHECK(torch::allclose(averaged[std::size_t(rank)][0], rank == 0 ? own0 : own1));
    CHECK(torch::allclose(averaged[std::size_t(rank)][2], mean));
  }
  for (auto& rank : run(BufferSync::average_after)) {
    CHECK(torch::allclose(rank[0], mean));
    CHECK(rank[1].item<std::int64_t>() == 1);
  }
}

TEST_CASE("DDP: of complex buffers, too, ranks get the mean") {
  for (const auto sync : {BufferSync::average_before, BufferSync::average_after})
    for (auto& rank : spawn({.nprocs = 2}, complex_buffers, ShmGroup(2), sync)) {
      CHECK(torch::equal(rank[0], torch::full({3}, c10::complex<float>(0.5, 1.5), at::kComplexFloat)));
      CHECK(torch::equal(rank[1], torch::full({3}, c10::complex<double>(0.5, -1.5), at::kComplexDouble)));
    }
}

TEST_CASE("DDP: sparse gradients of embeddings are those of the joint batch") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 3}, sparse, ShmGroup(3), progress)) CHECK(said == "went through");
}

TEST_CASE("DDP: ranks may keep the parameters that they have, and unused buckets need not be reduced") {
  const auto run = [](bool init_sync, bool skip) {
    return spawn({.nprocs = 2}, start_and_skip, ShmGroup(2), init_sync, skip);
  };
  const auto usual = run(true, false), kept = run(false, false), skipped = run(true, true);
  CHECK(usual[0].first);
  CHECK(!usual[1].first);
  CHECK(kept[1].first);
  for (int rank : {0, 1}) CHECK(skipped[std::size_t(rank)].second < usual[std::size_t(rank)].second);
}

TEST_CASE("DDP: a bfloat16 module trains by float copies of its parameters") {
  for (auto& said : spawn({.nprocs = 2}, half_with_masters, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DDP: gradients of a bfloat16 module are added in float, with a hook for it and without") {
  for (bool in_float : {false, true})
    for (auto& said : spawn({.nprocs = 4}, reduced_in_float, ShmGroup(4), in_float)) CHECK(said == "went through");
}

}  // namespace ddp_options_test
