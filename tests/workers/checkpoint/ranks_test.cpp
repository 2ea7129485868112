// Checkpoints of several ranks, loaded by other numbers of them.
#include <fmt/format.h>
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_file.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/train/diloco.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

torch::optim::AdamOptions options() { return torch::optim::AdamOptions(0.01).amsgrad(true); }

/// Trains on equal data on all ranks, so that any number of them gives one process's numbers: first without a
/// checkpoint, then from the newest. Returns the step it began with.
std::int64_t train(int rank, ShmGroup group, std::string folder, int from, int to, bool asynchronous) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = small_net(10 + from), reference = small_net(10);
  ZeroRedundancyOptimizer optimizer(net->parameters(), optimizer_maker<torch::optim::Adam>(options()), process_group);
  torch::optim::Adam alone(reference->parameters(), options());
  int own = from == 0 ? rank : -1;
  CheckpointParts parts;
  parts.add("model", net);
  parts.add("optimizer", optimizer, *net);
  parts.add("own", own);
  parts.add_random_state("random");
  Checkpoints checkpoints({.folder = folder}, process_group);
  const std::int64_t begin = checkpoints.load(parts).value_or(0);
  const auto step_of = [](torch::nn::Sequential& of, int step) {
    torch::manual_seed(500 + step);
    of->forward(torch::randn({8, 6})).pow(2).mean().backward();
  };
  for (int step = 0; step < to; ++step) {
    alone.zero_grad();
    step_of(reference, step);
    alone.step();
    if (step < begin) continue;
    optimizer.zero_grad();
    step_of(net, step);
    optimizer.step();
  }
  require(same_values(*net, *reference), fmt::format("rank {}: other values than one process has", rank));
  if (from != 0) require(own >= 0, "the rank's own value was not loaded");
  asynchronous ? checkpoints.save_async(to, parts) : checkpoints.save(to, parts);
  checkpoints.wait();
  process_group->barrier()->wait();
  require(checkpoints.steps().back() == to, "the step is not complete");
  return begin;
}

/// A bfloat16 module, on whose float copies an optimizer steps of which each rank has a part, and an outer one.
struct HalfTraining {
  HalfTraining(int seed, const c10::intrusive_ptr<c10d::ProcessGroup>& group)
      : net(small_net(seed)),
        masters([&] {
          net->to(at::kBFloat16);
          return net->parameters();
        }()),
        inner(masters.parameters(), optimizer_maker<torch::optim::Adam>(options()), group),
        diloco(masters.parameters(), group, {.sync_every = 2}) {
    parts.add("model", net);
    parts.add("masters", masters, *net);
    parts.add("inner", inner, masters, *net);
    parts.add("diloco", diloco, masters, *net);
  }
  void step(int number) {
    torch::manual_seed(500 + number);
    net->zero_grad();
    net->forward(torch::randn({8, 6}).to(at::kBFloat16)).pow(2).mean().backward();
    masters.take_gradients();
    inner.step();
    diloco.step();
    masters.give_parameters();
  }
  torch::nn::Sequential net;
  FloatMasters masters;
  ZeroRedundancyOptimizer inner;
  DiLoCo diloco;
  CheckpointParts parts;
};

std::string float_copies(int rank, ShmGroup group, std::string folder) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  HalfTraining unbroken(1, process_group), loaded(2, process_group);
  for (int step = 0; step < 3; ++step) unbroken.step(step);
  Checkpoints checkpoints({.folder = folder}, process_group);
  checkpoints.save(3, unbroken.parts);
  process_group->barrier()->wait();
  require(checkpoints.load(loaded.parts) == 3, "the step");
  for (int step = 3; step < 7; ++step) {
    unbroken.step(step);
    loaded.step(step);
  }
  require(same_values(*loaded.net, *unbroken.net), "other values than without a break");
  for (std::size_t i = 0; i < loaded.masters.parameters().size(); ++i)
    require(torch::equal(loaded.masters.parameters()[i], unbroken.masters.parameters()[i]), "other copies");
  return "went through";
}

std::vector<std::string> names_in(const std::string& folder, std::int64_t step, int rank, int ranks) {
  const shoal::detail::CheckpointFile file(folder + "/" + shoal::detail::shard_file_name({step, rank, ranks}));
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  return names;
}

}  // namespace

TEST_CASE("checkpoint: ZeRO and DiLoCo go on over float copies, by the names of what these are copies of") {
  const TemporaryFolder folder;
  for (auto& said : spawn({.nprocs = 2}, float_copies, ShmGroup(2), folder.path())) CHECK(said == "went through");
  CHECK(std::ranges::count(names_in(folder.path(), 3, 0, 2), "diloco.start/0.weight") +
            std::ranges::count(names_in(folder.path(), 3, 1, 2), "diloco.start/0.weight") ==
        1);
}

TEST_CASE("checkpoint: 1, 3, 2 and 1 ranks go on from each other's, bit for bit, a ZeRO optimizer as well") {
  const TemporaryFolder folder;
  int from = 0;
  for (const int ranks : {1, 3, 2, 1}) {
    INFO(ranks << " ranks from step " << from);
    const auto begun = spawn({.nprocs = ranks}, train, ShmGroup(ranks), folder.path(), from, from + 3, ranks != 2);
    for (const std::int64_t begin : begun) CHECK(begin == from);
    from += 3;
  }
  // What is equal is there once, in parts of about the same size; what is a rank's own in each shard.
  std::multiset<std::string> all;
  std::size_t most = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const auto names = names_in(folder.path(), 9, rank, 2);
    most = std::max(most, names.size());
    all.insert(names.begin(), names.end());
  }
  CHECK(all.count("model/0.weight") == 1);
  CHECK(all.count("model/1.running_mean") == 1);
  CHECK(all.count("optimizer/3.weight/exp_avg") == 1);
  CHECK(all.count("own") == 2);
  CHECK(most < all.size());
}

namespace {

/// A DDP training over a loader, killed after its checkpoint or not. Returns the samples' sum that this rank has seen
/// since, and the weights.
std::pair<std::vector<std::int64_t>, at::Tensor> ddp(int rank, ShmGroup group, std::string folder, int stop_at) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(5);
  torch::nn::Linear net(1, 1);
  net->to(at::kDouble);
  DistributedDataParallel<torch::nn::Linear> ddp(net, process_group);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.001).momentum(0.9));
  const std::int64_t ranks = process_group->getSize();
  DataLoader loader({.batch_size = 8 / ranks}, tensor_dataset(torch::arange(96, at::kDouble).unsqueeze(1)),
                    DistributedSampler({.num_replicas = ranks, .rank = rank, .seed = 3}, 96));
  CheckpointParts parts;
  parts.add("model", net);
  parts.add("optimizer", sgd, *net);
  parts.add("loader", loader);
  Checkpoints checkpoints({.folder = folder}, process_group);
  std::int64_t step = checkpoints.load(parts).value_or(0);
  std::vector<std::int64_t> seen;
  for (auto& [batch] : loader) {
    sgd.zero_grad();
    (ddp.forward(batch / 96) - 0.5 * batch).pow(2).mean().backward();
    sgd.step();
    for (std::int64_t i = 0; i < batch.size(0); ++i) seen.push_back(batch[i].item<std::int64_t>());
    if (++step == stop_at) {
      checkpoints.save_async(step, parts);
      break;
    }
  }
  checkpoints.wait();
  process_group->barrier()->wait();
  return {seen, net->weight.detach().clone()};
}

}  // namespace

TEST_CASE("checkpoint: DDP goes on within its epoch with another number of ranks, and sees each sample once") {
  const TemporaryFolder folder, other;
  const auto first = spawn({.nprocs = 2}, ddp, ShmGroup(2), folder.path(), 5);
  const auto second = spawn({.nprocs = 1}, ddp, ShmGroup(1), folder.path(), 0);
  const auto undisturbed = spawn({.nprocs = 2}, ddp, ShmGroup(2), other.path(), 0);
  std::multiset<std::int64_t> seen;
  for (const auto& [samples, weight] : first) seen.insert(samples.begin(), samples.end());
  CHECK(seen.size() == 40);
  for (const auto& [samples, weight] : second) seen.insert(samples.begin(), samples.end());
  CHECK(seen.size() == 96);
  CHECK(std::set<std::int64_t>(seen.begin(), seen.end()).size() == 96);
  CHECK(torch::allclose(second[0].second, undisturbed[0].second, 0, 1e-9));
}

namespace {

/// Each rank trains a module of its own, as stages of a pipeline are; one has a parameter that no gradient came for.
std::string own_modules(int rank, ShmGroup group, std::string folder) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  const auto make = [&](int seed) {
    torch::manual_seed(seed);
    torch::nn::Sequential net(torch::nn::Linear(6, 6), torch::nn::Linear(6, 6));
    for (int more = 0; more < rank; ++more) net->push_back(torch::nn::Linear(6, 6));
    return net;
  };
  const auto step = [&](torch::nn::Sequential& net, torch::optim::Adam& optimizer) {
    optimizer.zero_grad();
    net->forward(torch::ones({2, 6})).pow(2).mean().backward();
    if (rank == 1) net->parameters()[0].mutable_grad().reset();
    optimizer.step();
  };
  torch::nn::Sequential net = make(1), loaded = make(2);
  torch::optim::Adam optimizer(net->parameters(), 0.01), other(loaded->parameters(), 0.01);
  CheckpointParts from, to;
  from.add("model", net, OnRanks::own);
  from.add("optimizer", optimizer, *net, OnRanks::own);
  to.add("model", loaded, OnRanks::own);
  to.add("optimizer", other, *loaded, OnRanks::own);
  step(net, optimizer);
  Checkpoints checkpoints({.folder = folder}, process_group);
  checkpoints.save(1, from);
  process_group->barrier()->wait();  // all have written theirs
  require(checkpoints.load(to) == 1, "the step");
  require(same_values(*loaded, *net), "the module");
  const bool has_state = other.state().count(loaded->parameters()[0].unsafeGetTensorImpl()) != 0;
  require(has_state == (rank != 1), "state of a parameter that had none here");
  return "went through";
}

}  // namespace

TEST_CASE("checkpoint: what each rank has as its own may have other names, and other state, on each") {
  const TemporaryFolder folder;
  for (auto& said : spawn({.nprocs = 3}, own_modules, ShmGroup(3), folder.path())) CHECK(said == "went through");
}

namespace {

/// Rank 1 finds at step 30 that its shard of step 10 was not written: its writer stands still until all is begun. Then all
/// load step 20, together or by its number, and go on.
std::string go_on_after_failed_save(int rank, ShmGroup group, std::string folder, bool by_number) {
  auto process_group = init_process_group(group, rank);
  const auto place_of = [&](std::int64_t step, int shard) {
    return folder + "/" + shoal::detail::shard_file_name({step, shard, 2});
  };
  Plain plain;
  Checkpoints checkpoints({.folder = folder, .keep = 9}, process_group);
  const auto save = [&](std::int64_t step) {
    plain.set(step);
    checkpoints.save_async(step, plain.parts);
  };
  save(0);
  checkpoints.wait();  // the writer has started
  const auto send_to_writers = [&](int signal) {
    for (const int pid : checkpoints.writer_pids()) kill(pid, signal);
  };
  if (rank == 1) {
    std::filesystem::create_directory(place_of(10, 1));
    send_to_writers(SIGSTOP);
  }
  save(10);
  save(20);
  send_to_writers(SIGCONT);
  try {
    save(30);
    require(rank == 0, "rank 1's save of step 30 went through");
  } catch (const CheckpointNotSaved& error) {
    require(rank == 1 && error.step() == 10, error.what());
    std::filesystem::remove(place_of(10, 1));
  }
  const auto load = [&] {
    checkpoints.wait();
    process_group->barrier()->wait();
    return checkpoints.load(plain.parts).value_or(-1);
  };
  if (by_number) {
    checkpoints.wait();
    process_group->barrier()->wait();
    checkpoints.load_step(20, plain.parts);
  } else {
    require(load() == 20, "another step than the one before the failure");
  }
  require(plain.is(20), "the step before the failure");
  save(30);
  save(40);
  require(load() == 40 && plain.is(40), "a step after it");

  // The same where what is loaded does not fit one rank's parts.
  save(50);
  checkpoints.wait();
  process_group->barrier()->wait();
  if (rank == 0) std::filesystem::remove(place_of(50, 0));
  double other = 0;
  CheckpointParts unfit;
  unfit.add("count", other);
  try {
    const auto step = checkpoints.load(rank == 1 ? unfit : plain.parts);
    require(rank == 0 && step == 40, "what does not fit was loaded");
  } catch (const CheckpointError& error) {
    require(rank == 1, error.what());
  }
  save(60);
  require(load() == 60 && plain.is(60), "a step after one that did not fit");
  return "went through";
}

/// Rank 1 leaves out a batch, and so saves step 30 and later ones a pass before the others do: none of these is whole. Then
/// both load the one before it, and what they save from there is.
std::string leave_out_a_batch(int rank, ShmGroup group, std::string folder, bool asynchronous) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  torch::nn::Linear net(4, 2);
  DistributedDataParallel<torch::nn::Linear> ddp(net, process_group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  CheckpointParts parts;
  parts.add("model", *net);
  Checkpoints checkpoints({.folder = folder, .keep = 2}, process_group);
  const auto train = [&](std::int64_t from, std::int64_t to, std::int64_t left_out) {
    for (std::int64_t step = from; step <= to; ++step) {
      if (step != left_out) {
        optimizer.zero_grad();
        ddp.forward(torch::ones({2, 4})).pow(2).mean().backward();
        optimizer.step();
      }
      if (step % 10 == 0) asynchronous ? checkpoints.save_async(step, parts) : checkpoints.save(step, parts);
    }
    checkpoints.wait();
  };
  train(1, 119 + rank, rank == 1 ? 25 : 0);
  process_group->barrier()->wait();
  // Two whole ones, two of the others, and rank 1's last.
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder)) ++files;
  require(files == 9, fmt::format("{} files", files));
  require(checkpoints.load(parts) == 20, "a step of two states was loaded, or the whole one is gone");
  train(21, 40, 0);
  process_group->barrier()->wait();
  require(checkpoints.load(parts) == 40, "a step after it");
  return "went through";
}

/// Ranks throw at some steps, and load where they are told. In the end they have what they would have without.
std::string load_after_exceptions(int rank, ShmGroup group, std::string folder, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(4, 20), torch::nn::Tanh(), torch::nn::Linear(20, 2));
  DistributedDataParallel<torch::nn::Sequential> ddp({.bucket_bytes = 100, .first_bucket_bytes = 100}, net,
                                                     process_group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  CheckpointParts parts;
  parts.add("model", *net);
  Checkpoints checkpoints({.folder = folder}, process_group);
  const auto train = [&](std::set<std::int64_t> faults) {
    for (std::int64_t step = 1; step <= 40; ++step) try {
        optimizer.zero_grad();
        const at::Tensor loss = ddp.forward(torch::ones({2, 4}) * double(step)).pow(2).mean();
        if (faults.erase(step) != 0) throw std::runtime_error("this rank's own fault");
        loss.backward();
        optimizer.step();
        if (step % 10 == 0) checkpoints.save_async(step, parts);
      } catch (const PeerDied&) {
        throw;
      } catch (const std::exception&) {
        step = checkpoints.load(parts).value();
      }
    checkpoints.wait();
    return torch::nn::utils::parameters_to_vector(net->parameters()).detach().clone();
  };
  checkpoints.save(0, parts);
  process_group->barrier()->wait();
  const at::Tensor with = train({3 + rank, 17, 25 + 2 * rank});
  process_group->barrier()->wait();
  checkpoints.load_step(40, parts);
  require(at::equal(with, torch::nn::utils::parameters_to_vector(net->parameters()).detach()),
          "step 40 is another one");
  process_group->barrier()->wait();
  torch::manual_seed(0);
  torch::nn::Sequential anew(torch::nn::Linear(4, 20), torch::nn::Tanh(), torch::nn::Linear(20, 2));
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < anew->parameters().size(); ++i) net->parameters()[i].copy_(anew->parameters()[i]);
  }
  require(at::equal(with, train({})), "the numbers are not those without exceptions");
  return "went through";
}

/// Step 10 is saved again when both are told to stop, and rank 1 ends before it has: it is still whole.
std::string save_again(int rank, ShmGroup group, std::string folder) {
  auto process_group = init_process_group(group, rank);
  Plain plain;
  Checkpoints checkpoints({.folder = folder, .keep = 1}, process_group);
  plain.set(5);
  checkpoints.save(5, plain.parts);
  plain.set(10);
  checkpoints.save(10, plain.parts);
  CheckpointParts ends;
  ends.add("values", []() -> int { throw std::runtime_error("rank 1 ends"); }, [](int) {});
  stop_requested();  // from here on signals are counted
  raise(SIGTERM);
  try {
    checkpoints.save_if_stopped(10, rank == 1 ? ends : plain.parts);
    require(rank == 0, "rank 1 saved again");
  } catch (const std::runtime_error&) {
    require(rank == 1, "rank 0 did not save again");
  }
  process_group->barrier()->wait();
  plain.set(0);
  require(checkpoints.load(plain.parts) == 10 && plain.is(10), "step 10 is not whole");
  return "went through";
}

/// What the second rank's options are refused with, and what the first says of it. Then both make what they can.
std::string make_what_rank_one_cannot(int rank, ShmGroup group, std::string folder) {
  auto process_group = init_process_group(group, rank);
  std::string said = "nothing";
  try {
    const Checkpoints none({.folder = folder, .keep = 1 - rank}, process_group);
  } catch (const std::exception& error) {
    said = error.what();
  }
  const Checkpoints whole({.folder = folder}, process_group);
  return said;
}

}  // namespace

TEST_CASE("checkpoint: what ranks save after a failure of one of them and a load() is of one run") {
  for (const bool by_number : {false, true}) {
    INFO((by_number ? "load_step()" : "load()"));
    const TemporaryFolder folder;
    for (auto& said : spawn({.nprocs = 2}, go_on_after_failed_save, ShmGroup(2), folder.path(), by_number))
      CHECK(said == "went through");
  }
}

TEST_CASE("checkpoint: a step that ranks save after different numbers of passes is not whole") {
  for (const bool asynchronous : {false, true}) {
    const TemporaryFolder folder;
    for (auto& said : spawn({.nprocs = 2}, leave_out_a_batch, ShmGroup(2), folder.path(), asynchronous))
      CHECK(said == "went through");
  }
}

TEST_CASE("checkpoint: ranks that load where an exception comes to them meet, and lose nothing") {
  for (const Progress progress : {Progress::in_call, Progress::thread}) {
    const TemporaryFolder folder;
    for (auto& said : spawn({.nprocs = 3}, load_after_exceptions, ShmGroup(3), folder.path(), progress))
      CHECK(said == "went through");
  }
}

TEST_CASE("checkpoint: a step that some ranks have saved again and others have not is whole") {
  const TemporaryFolder folder;
  for (auto& said : spawn({.nprocs = 2}, save_again, ShmGroup(2), folder.path())) CHECK(said == "went through");
}

TEST_CASE("checkpoint: what one rank cannot make is refused on all, and none waits for it") {
  const TemporaryFolder folder;
  const auto said = spawn({.nprocs = 2}, make_what_rank_one_cannot, ShmGroup(2), folder.path());
  CHECK_THAT(said[0], ContainsSubstring("cannot be made on rank 1"));
  CHECK_THAT(said[1], ContainsSubstring("0 kept"));
}

TEST_CASE("checkpoint: ranks' own optimizers may have other numbers of groups, and none takes another rank's") {
  const TemporaryFolder folder;
  torch::nn::Sequential net = small_net(1);
  const auto all = net->parameters();
  const auto rank_of_two = [&](int rank) {
    return Checkpoints({.folder = folder.path(), .rank = rank, .ranks = 2, .run_id = "run"});
  };
  Checkpoints zero = rank_of_two(0), one = rank_of_two(1);
  torch::optim::Adam whole(all, 0.1);
  torch::optim::Adam halves(
      std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup({all.begin(), all.begin() + 3}),
                                                     torch::optim::OptimizerParamGroup({all.begin() + 3, all.end()})});
  torch::optim::LBFGS lbfgs(all);
  CheckpointParts of_zero, of_one, both;
  of_zero.add("optimizer", whole, OnRanks::own);
  of_zero.add("lbfgs", lbfgs, OnRanks::own);
  of_one.add("optimizer", halves, OnRanks::own);
  both.add("optimizer", halves, OnRanks::own);
  both.add("lbfgs", lbfgs, OnRanks::own);
  zero.save(1, of_zero);
  one.save(1, of_one);
  CHECK(zero.load(of_zero) == 1);
  CHECK(one.load(of_one) == 1);
  CHECK_THROWS_WITH(one.load(both), ContainsSubstring("'lbfgs/archive'") && ContainsSubstring("this shard does not"));
}
