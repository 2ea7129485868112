// Collectives that are under way: what their Work says, by whom they are done, and how they end.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/observe/tracer.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace work_test {

namespace {

using Tensors = std::vector<at::Tensor>;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

c10::intrusive_ptr<c10d::ProcessGroup> join(const ShmGroup& group, int rank) {
  at::set_num_threads(1);
  return init_process_group(group, rank, {.progress = Progress::thread});
}

/// Rank 0's is under way until rank 1 comes, which waits for that to be seen.
std::vector<std::string> under_way(int rank, ShmGroup group, Event seen) {
  auto ranks = join(group, rank);
  std::vector<std::string> said;
  Tensors one{at::full({1000}, float(rank + 1))};
  if (rank == 1) seen.wait();
  auto work = ranks->allreduce(one);
  if (rank == 0) {
    said.push_back(work->isCompleted() ? "done" : "under way");
    try {
      work->wait(std::chrono::milliseconds(10));
    } catch (const TimeoutError& error) {
      said.push_back(error.what());
    }
    auto future = work->getFuture();
    std::atomic<bool> called{false};
    auto chained = future->then(
        [&](c10::ivalue::Future& done) -> c10::IValue {
          called = true;
          return done.value().toTensorVector().at(0).sum();
        },
        c10::TensorType::get());
    said.push_back(future->completed() || called ? "done" : "under way");
    seen.set();
    work->wait();
    require(work->isCompleted() && work->isSuccess() && !work->exception(), "work that is done");
    chained->wait();
    said.push_back(fmt::format("{}", chained->value().toTensor().item<float>()));
    require(called && future->completed(), "what was chained");
  }
  work->wait();
  said.push_back(fmt::format("{}", one[0][999].item<float>()));
  return said;
}

}  // namespace

TEST_CASE(
    "work: a collective is under way until all ranks have come, and its future then calls what is chained to it") {
  auto said = spawn({.nprocs = 2}, under_way, ShmGroup(2), Event());
  REQUIRE(said[0].size() == 5);
  CHECK(said[0][0] == "under way");
  CHECK_THAT(said[0][1], ContainsSubstring("collective 1 (ALLREDUCE) is not over after 10 ms"));
  CHECK(said[0][2] == "under way");
  CHECK(said[0][3] == "3000");
  CHECK(said[0][4] == "3");
  CHECK(said[1] == std::vector<std::string>{"3"});
}

namespace {

/// Several at once, in the order of the calls; of one nobody keeps the Work.
int many_at_once(int rank, ShmGroup group) {
  auto ranks = join(group, rank);
  std::vector<Tensors> lists;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 50; ++i) {
    lists.push_back({at::full({i % 5 == 0 ? 200'000 : 100}, float(rank * 100 + i))});
    auto work = i % 2 == 0 ? ranks->allreduce(lists.back()) : ranks->broadcast(lists.back(), {.rootRank = i % 3});
    if (i % 7 != 0) works.push_back(work);
  }
  for (auto& work : works) work->wait();
  ranks->barrier()->wait();
  int right = 0;
  for (int i = 0; i < 50; ++i) {
    const float wanted = float(i % 2 == 0 ? 300 + 3 * i : i % 3 * 100 + i);
    right += at::equal(lists[std::size_t(i)][0], at::full_like(lists[std::size_t(i)][0], wanted));
  }
  return right;
}

/// The exceptions of ranks that disagree, and of a death, come out of wait() and of the future.
std::vector<std::string> failures(int rank, ShmGroup group) {
  auto ranks = join(group, rank);
  std::vector<std::string> said;
  Tensors one{at::ones({10})}, other{at::ones({11})};
  auto wrong = ranks->allreduce(rank == 0 ? one : other);
  auto right = ranks->allreduce(one);  // begun before anybody knows
  try {
    wrong->wait();
  } catch (const std::invalid_argument& error) {
    said.push_back(error.what());
  }
  require(wrong->isCompleted() && !wrong->isSuccess() && wrong->exception(), "work that went wrong");
  auto future = wrong->getFuture();
  require(future->completed() && future->hasError(), "the future of work that went wrong");
  right->wait();
  said.push_back(fmt::format("{}", one[0][0].item<float>()));
  if (rank == 1) {
    ranks->barrier()->wait();
    ::raise(SIGKILL);
  }
  ranks->barrier()->wait();
  auto first = ranks->allreduce(one), second = ranks->allreduce(one);
  for (auto& work : {first, second}) try {
      work->wait();
    } catch (const PeerDied& death) {
      said.push_back(death.what());
    }
  return said;
}

/// Rank 0's group goes while a collective is under way: the others still get its part.
float group_goes_first(int rank, ShmGroup group, Event gone) {
  Tensors one{at::full({10}, float(rank + 1))};
  auto ranks = join(group, rank);
  if (rank == 1) {
    gone.wait();
    ranks->allreduce(one)->wait();
    return one[0][0].item<float>();
  }
  ranks->allreduce(one);
  std::thread setter([gone]() mutable { gone.set(); });
  ranks = {};  // waits for it
  setter.join();
  return one[0][0].item<float>();
}

/// What is chained to rank 0's first collective has the last share of its group, and a second collective is behind it.
std::string callback_goes_last(int rank, ShmGroup group, Event gone) {
  Tensors one{at::full({10}, float(rank + 1))}, two{at::full({10}, float(10 * rank + 1))};
  auto ranks = join(group, rank);
  auto reported = std::make_shared<std::atomic<int>>(0);
  ranks->getBackend(c10::kCPU)->registerOnCompletionHook([reported](auto) { ++*reported; });
  if (rank == 1) gone.wait();
  auto first = ranks->allreduce(one), second = ranks->allreduce(two);
  if (rank == 0) {
    first->getFuture()->addCallback([keeps = ranks](c10::ivalue::Future&) {});
    ranks = {};
    gone.set();
  }
  first->wait();
  second->wait();
  while (*reported < 2) std::this_thread::yield();
  return fmt::format("{} {}", one[0][0].item<float>(), two[0][0].item<float>());
}

}  // namespace

TEST_CASE("work: a group that goes in what is chained to a collective does those behind it, too") {
  CHECK(spawn({.nprocs = 2}, callback_goes_last, ShmGroup(2), Event()) == std::vector<std::string>(2, "3 12"));
}

TEST_CASE("work: collectives are done in the order in which they were begun, whether their Work is kept or not") {
  CHECK(spawn({.nprocs = 3}, many_at_once, ShmGroup(3)) == std::vector<int>(3, 50));
}

TEST_CASE("work: what goes wrong comes out of wait() and the future, and what can go on does") {
  ShmGroup group(2);
  Process<std::vector<std::string>> first({}, failures, 0, group), second({}, failures, 1, group);
  first.start();
  second.start();
  const auto said = first.result();
  second.join();
  REQUIRE(said.size() == 4);
  CHECK_THAT(said[0], ContainsSubstring("all_reduce(40 bytes") && ContainsSubstring("all_reduce(44 bytes"));
  CHECK(said[1] == "2");
  for (int i : {2, 3})
    CHECK_THAT(said[std::size_t(i)], ContainsSubstring("all_reduce: rank 1 (process ") && ContainsSubstring("died"));
}

TEST_CASE("work: a group that goes waits for the collectives that are under way") {
  CHECK(spawn({.nprocs = 2}, group_goes_first, ShmGroup(2), Event()) == std::vector<float>{3, 3});
}

namespace {

/// Whether the calling thread did the second collective; the first decides.
int done_in_call(int rank, ShmGroup group, Progress progress) {
  auto ranks = init_process_group(group, rank, {.progress = progress});
  ranks->barrier()->wait();
  std::atomic<bool> in_call{false};
  const auto caller = std::this_thread::get_id();
  auto backend = ranks->getBackend(c10::kCPU);
  backend->registerOnCompletionHook([&](auto) { in_call = std::this_thread::get_id() == caller; });
  ranks->barrier()->wait();
  backend->registerOnCompletionHook({});  // waits for the hook
  return in_call;
}

}  // namespace

TEST_CASE("work: a thread does the collectives where a rank has two CPUs, or where it is asked for") {
  const int alone = usable_cpus() / 2.0 < 2;
  CHECK(spawn({.nprocs = 2}, done_in_call, ShmGroup(2), Progress::automatic) == std::vector<int>{alone, alone});
  CHECK(spawn({.nprocs = 2}, done_in_call, ShmGroup(2), Progress::thread) == std::vector<int>{0, 0});
  CHECK(spawn({.nprocs = 2}, done_in_call, ShmGroup(2), Progress::in_call) == std::vector<int>{1, 1});
  CHECK(spawn({.nprocs = 1}, done_in_call, ShmGroup(1), Progress::automatic) == std::vector<int>{1});
}

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) layers.push_back(register_module(fmt::format("layer{}", i), torch::nn::Linear(64, 64)));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::tanh(layer->forward(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Net);

/// A few steps, in each of which the backward pass goes no further than to the first layer's gradient before one bucket
/// has been reduced.
std::vector<at::Tensor> train(int rank, ShmGroup group, Progress progress, bool waits) {
  at::set_num_threads(1);
  auto ranks = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(3);
  Net net;
  DistributedDataParallel<Net> ddp({.bucket_bytes = 1000, .first_bucket_bytes = 1000}, net, ranks);
  std::atomic<int> reduced{0};
  auto backend = ranks->getBackend(c10::kCPU);
  backend->registerOnCompletionHook([&](auto info) { reduced += info->opType == c10d::OpType::ALLREDUCE; });
  if (waits)
    net->layers[0]->weight.register_hook([&](const at::Tensor&) {
      while (reduced == 0) std::this_thread::yield();
    });
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(100 * rank + step);
    const at::Tensor output = ddp.forward(torch::randn({4, 64}));
    reduced = 0;
    optimizer.zero_grad();
    output.pow(2).mean().backward();
    optimizer.step();
  }
  backend->registerOnCompletionHook({});
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

struct Interval {
  std::uint64_t start, end;
  std::uint32_t thread;
};

}  // namespace

TEST_CASE(
    "work: buckets are reduced by another thread while the backward pass goes on, as a trace shows, to the same bits") {
  ShmGroup group(2);
  std::map<pid_t, std::vector<Interval>> backwards, reductions;
  std::vector<std::vector<at::Tensor>> trained;
  {
    // A thread of its own: a tracer that is not heard of for a second has ended, and ranks may take longer to start.
    std::promise<void> is_on;
    std::jthread tracing([&](const std::stop_token& end) {
      Tracer tracer;
      is_on.set_value();
      const auto visit = [&](const TracedProcess& process, const TraceRecord& record) {
        if (record.kind != TraceKind::kSpan) return;
        const Interval event{record.start, record.end, record.thread};
        if (std::string(record.name) == "backward") backwards[process.pid].push_back(event);
        if (std::string(record.name) == "all_reduce") reductions[process.pid].push_back(event);
      };
      for (; !end.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(50))) tracer.drain(visit);
      tracer.finish(visit);
    });
    is_on.get_future().wait();
    std::vector<Process<std::vector<at::Tensor>>> processes;
    for (int rank = 0; rank < 2; ++rank) {
      processes.emplace_back(ProcessOptions{}, train, rank, group, Progress::thread, true);
      processes.back().start();
    }
    for (auto& process : processes) trained.push_back(process.result());
  }
  CHECK(backwards.size() == 2);
  for (const auto& [pid, passes] : backwards) {
    CHECK(passes.size() == 4);
    for (const Interval& pass : passes) {
      int beside = 0;
      for (const Interval& reduction : reductions[pid])
        beside += reduction.thread != pass.thread && reduction.start > pass.start && reduction.end < pass.end;
      CHECK(beside >= 2);
    }
  }
  const auto in_call = spawn({.nprocs = 2}, train, ShmGroup(2), Progress::in_call, false);
  for (const auto& values : {trained[0], trained[1], in_call[1]})
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(at::equal(values[i], in_call[0][i]));
}

namespace {

/// Rank 1 dies in the third step's forward pass.
std::string dies_in_training(int rank, ShmGroup group) {
  auto ranks = join(group, rank);
  torch::manual_seed(3);
  Net net;
  DistributedDataParallel<Net> ddp(net, ranks);
  try {
    for (int step = 0; step < 4; ++step) {
      const at::Tensor output = ddp.forward(torch::ones({4, 64}));
      if (rank == 1 && step == 2) ::raise(SIGKILL);
      output.pow(2).mean().backward();
    }
  } catch (const PeerDied& death) {
    return death.what();
  }
  return "";
}

}  // namespace

TEST_CASE("work: a death in the middle of training comes out of backward() as PeerDied, with a thread, too") {
  ShmGroup group(2);
  Process<std::string> first({}, dies_in_training, 0, group), second({}, dies_in_training, 1, group);
  first.start();
  second.start();
  CHECK_THAT(first.result(), ContainsSubstring("rank 1 (process ") && ContainsSubstring("died"));
  second.join();
}

}  // namespace work_test
