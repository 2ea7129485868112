#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/mnist.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "tests/support/catch.h"
#include "tests/workers/fork_refusal.h"
#include "tests/workers/loader/loader_fixtures.h"

TEST_CASE("DataLoader: batches and their order do not depend on the number of workers") {
  for (const bool shuffle : {false, true}) {
    DataLoader alone({.batch_size = 7, .shuffle = shuffle, .seed = 3}, Numbers{100});
    const auto first = one_epoch(alone);
    const auto second = one_epoch(alone);
    CHECK((first == second) == !shuffle);
    for (const int workers : {1, 2, 3}) {
      DataLoader loader({.batch_size = 7, .shuffle = shuffle, .num_workers = workers, .seed = 3}, Numbers{100});
      CHECK(one_epoch(loader) == first);
      CHECK(one_epoch(loader) == second);
    }
  }
}

TEST_CASE("DataLoader: an epoch has each sample once, also where sizes do not divide") {
  for (const std::int64_t count : {1, 5, 63, 64, 65}) {
    for (const int workers : {0, 2}) {
      DataLoader loader({.batch_size = 16, .shuffle = true, .num_workers = workers}, rows(count));
      const auto batches = one_epoch(loader);
      CHECK(loader.size() == (count + 15) / 16);
      CHECK(static_cast<std::int64_t>(batches.size()) == loader.size());
      auto seen = flat(batches);
      std::ranges::sort(seen);
      CHECK(seen == counting(count));
    }
  }
}

TEST_CASE("DataLoader: drop_last leaves out the small batch, and all of a set smaller than one") {
  for (const int workers : {0, 1}) {
    DataLoader loader({.batch_size = 8, .num_workers = workers, .drop_last = true}, Numbers{20});
    CHECK(loader.size() == 2);
    CHECK(flat(one_epoch(loader)) == counting(16));
    DataLoader nothing({.batch_size = 8, .num_workers = workers, .drop_last = true}, Numbers{7});
    CHECK(nothing.size() == 0);
    CHECK(one_epoch(nothing).empty());
  }
}

TEST_CASE("DataLoader: shuffled epochs differ, the same seed and epoch give the same order") {
  DataLoader loader({.batch_size = 10, .shuffle = true, .seed = 5}, Numbers{50});
  const auto first = one_epoch(loader);
  const auto second = one_epoch(loader);
  CHECK(first != second);
  DataLoader same({.batch_size = 10, .shuffle = true, .num_workers = 1, .seed = 5}, Numbers{50});
  same.set_epoch(1);
  CHECK(one_epoch(same) == second);
  same.set_epoch(0);
  CHECK(one_epoch(same) == first);
  DataLoader other({.batch_size = 10, .shuffle = true, .seed = 6}, Numbers{50});
  CHECK(one_epoch(other) != first);
  CHECK(flat(first) == shoal::RandomSampler({.seed = 5}, 50).indices());
}

TEST_CASE("DataLoader: a DistributedSampler's ranks load its indices, for the epoch that was set") {
  for (const int workers : {0, 2}) {
    std::multiset<std::int64_t> seen;
    for (const int rank : {0, 1}) {
      DistributedSampler sampler({.num_replicas = 2, .rank = rank, .seed = 11}, 40);
      DataLoader loader({.batch_size = 6, .num_workers = workers}, Numbers{40}, sampler);
      CHECK(loader.size() == 4);
      CHECK(flat(one_epoch(loader)) == sampler.indices());
      CHECK(flat(one_epoch(loader)) == sampler.indices());  // as in torch: until set_epoch says otherwise
      loader.set_epoch(4);
      sampler.set_epoch(4);
      const auto mine = flat(one_epoch(loader));
      CHECK(mine == sampler.indices());
      seen.insert(mine.begin(), mine.end());
    }
    CHECK(std::ranges::equal(seen, counting(40)));
  }
}

TEST_CASE("DataLoader: batches of workers lie in the shared heap, and stay as they were while they are kept") {
  DataLoader loader({.batch_size = 4, .num_workers = 2}, rows(64));
  std::vector<at::Tensor> kept;
  for (auto& [numbers, triples] : loader) {
    CHECK(shoal::is_shared(numbers));
    CHECK(shoal::is_shared(triples));
    CHECK(triples.sizes() == at::IntArrayRef({4, 3}));
    kept.push_back(numbers);
  }
  std::vector<std::int64_t> all;
  for (const at::Tensor& numbers : kept) {
    for (const std::int64_t number : first_column(numbers)) all.push_back(number);
  }
  CHECK(all == counting(64));
}

TEST_CASE("DataLoader: collated batches of workers are shared too") {
  DataLoader loader({.batch_size = 4, .num_workers = 1}, Numbers{8});
  for (const at::Tensor& batch : loader) CHECK(shoal::is_shared(batch));
}

TEST_CASE("DataLoader: the data set's tensors are one memory for all workers, and the caller's are left alone") {
  at::Tensor images = at::zeros({256, 28, 28}, at::kByte);
  const at::Tensor labels = at::arange(256);
  const std::size_t before = shoal::heap_bytes_in_use();
  DataLoader loader({.batch_size = 64, .num_workers = 3}, shoal::MnistDataset{images, labels});
  for (Example& batch : loader) CHECK(batch.data.sizes() == at::IntArrayRef({64, 28, 28}));
  CHECK_FALSE(shoal::is_shared(images));
  CHECK(shoal::is_shared(loader.dataset().images));
  const std::size_t dataset_bytes = 256 * 28 * 28 + 256 * 8;
  CHECK(shoal::heap_bytes_in_use() - before < 2 * dataset_bytes);

  shoal::share_memory_(images);
  DataLoader sharing({.batch_size = 64, .num_workers = 1}, shoal::MnistDataset{images, labels});
  for ([[maybe_unused]] Example& batch : sharing) {
  }
  CHECK(sharing.dataset().images.const_data_ptr() == images.const_data_ptr());
}

TEST_CASE("DataLoader: the second epoch starts no process, unless workers shall not persist") {
  DataLoader loader({.batch_size = 4, .num_workers = 2}, Numbers{16});
  CHECK(loader.worker_pids().empty());
  one_epoch(loader);
  const auto pids = loader.worker_pids();
  CHECK(pids.size() == 2);
  one_epoch(loader);
  CHECK(loader.worker_pids() == pids);

  DataLoader brief({.batch_size = 4, .num_workers = 1, .persistent_workers = false}, Numbers{16});
  CHECK(flat(one_epoch(brief)) == counting(16));
  CHECK(brief.worker_pids().empty());
  CHECK(flat(one_epoch(brief)) == counting(16));
}

TEST_CASE("DataLoader: every start method gives the same batches") {
  for (const auto method : {shoal::StartMethod::spawn, shoal::StartMethod::forkserver, shoal::StartMethod::fork}) {
    if (method == shoal::StartMethod::fork && shoal::test::fork_is_refused()) continue;
    DataLoader loader({.batch_size = 5, .num_workers = 1, .start_method = method, .fork_despite_threads = true},
                      Numbers{20});
    CHECK(flat(one_epoch(loader)) == counting(20));
  }
}

TEST_CASE("DataLoader: a data set that can't be sent is inherited by forked workers, and refused for others") {
  struct Inherited {
    Inherited() = default;  // no plain data
    std::int64_t size() const { return 6; }
    std::int64_t get(std::int64_t index) const { return index; }
  };
  static_assert(!shoal::Encodable<Inherited>);
  if (!shoal::test::fork_is_refused()) {
    DataLoader loader(
        {.batch_size = 2, .num_workers = 2, .start_method = shoal::StartMethod::fork, .fork_despite_threads = true},
        Inherited());
    CHECK(flat(one_epoch(loader)) == counting(6));
  }
  DataLoader refused({.batch_size = 2, .num_workers = 2}, Inherited());
  CHECK_THROWS_AS(refused.begin(), std::invalid_argument);
}

// Draws from libtorch's generator and from the sample's own.
struct Random {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    shoal::SampleRandom random(shoal::sample_key(index));
    return at::stack({at::rand({}, at::kDouble), at::scalar_tensor(random.uniform(), at::kDouble)});
  }
};

TEST_CASE("DataLoader: what is random in samples depends on seed and epoch, not on the number of workers") {
  auto epoch = [](int workers, std::uint64_t seed, std::int64_t number) {
    DataLoader loader({.batch_size = 5, .shuffle = true, .num_workers = workers, .seed = seed}, Random{23});
    loader.set_epoch(number);
    std::vector<at::Tensor> batches;
    for (const at::Tensor& batch : loader) batches.push_back(batch.clone());
    return at::cat(batches);
  };
  const at::Tensor expected = epoch(0, 3, 1);
  for (const int workers : {1, 2, 7}) CHECK(epoch(workers, 3, 1).equal(expected));
  CHECK_FALSE(epoch(2, 3, 2).equal(expected));
  CHECK_FALSE(epoch(2, 4, 1).equal(expected));
}

TEST_CASE("DataLoader: without workers libtorch's generator goes on as if nothing had been loaded") {
  at::manual_seed(5);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(5);
  DataLoader loader({.batch_size = 5}, Random{10});
  for ([[maybe_unused]] const at::Tensor& batch : loader) {
  }
  CHECK(at::rand({3}).equal(expected));
}

TEST_CASE("DataLoader: a state of a few bytes goes on with the samples not seen, with another number of workers") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 8}, Numbers{50});
  one_epoch(loader);
  const shoal::LoaderState at_end{8, 1, 0, 50, 0, 0, 1, "shuffled with seed 8"};
  CHECK(loader.state_dict() == at_end);
  std::vector<std::vector<std::int64_t>> seen;
  for (const at::Tensor& batch : loader) {
    seen.push_back(first_column(batch));
    if (seen.size() == 5) break;
  }
  const shoal::LoaderState state = loader.state_dict();
  CHECK(state == shoal::LoaderState{8, 1, 20, 50, 0, 0, 1, "shuffled with seed 8"});
  CHECK(shoal::LoaderState::from_string(state.to_string()) == state);
  CHECK(state.to_string().size() < 1024);
  for (const int others : {0, 1, 3}) {
    DataLoader other({.batch_size = 4, .shuffle = true, .num_workers = others, .seed = 8}, Numbers{50});
    other.load_state_dict(state);
    CHECK(other.state_dict() == state);
    auto whole = seen;
    for (auto& batch : one_epoch(other)) whole.push_back(batch);
    DataLoader reference({.batch_size = 4, .shuffle = true, .seed = 8}, Numbers{50});
    reference.set_epoch(1);
    CHECK(whole == one_epoch(reference));
    CHECK(other.state_dict() == shoal::LoaderState{8, 2, 0, 50, 0, 0, 2, "shuffled with seed 8"});
  }
}

TEST_CASE("DataLoader: a state of some ranks goes on with other ranks, the batches of all together as they would be") {
  const std::int64_t samples = 64, global_batch = 8;
  auto run = [&](int ranks, std::int64_t batches, const std::optional<shoal::LoaderState>& from) {
    std::vector<std::vector<std::int64_t>> together;
    together.resize(static_cast<std::size_t>(batches));
    shoal::LoaderState state;
    for (int rank = 0; rank < ranks; ++rank) {
      DataLoader loader({.batch_size = global_batch / ranks, .num_workers = rank % 2}, Numbers{samples},
                        DistributedSampler({.num_replicas = ranks, .rank = rank, .seed = 4}, samples));
      if (from) loader.load_state_dict(*from);
      std::int64_t batch = 0;
      for (const at::Tensor& mine : loader) {
        auto& all = together.at(std::size_t(batch));
        for (const std::int64_t number : first_column(mine)) all.push_back(number);
        if (++batch == batches) break;
      }
      state = loader.state_dict();
    }
    for (auto& batch : together) std::ranges::sort(batch);
    return std::pair(together, state);
  };
  const auto [whole, at_end] = run(1, 8, std::nullopt);
  const auto [first, state] = run(4, 3, std::nullopt);
  CHECK(state.place == 24);
  const auto [second, unused] = run(2, 5, state);
  for (std::size_t i = 0; i < 8; ++i) CHECK(whole[i] == (i < 3 ? first[i] : second[i - 3]));
}

TEST_CASE("DataLoader: a state that does not fit is refused by name") {
  DataLoader loader({.seed = 1}, Numbers{10});
  CHECK_THROWS_WITH(loader.load_state_dict({.seed = 1, .dataset_size = 11}), ContainsSubstring("11 samples"));
  CHECK_THROWS_WITH(loader.load_state_dict({.seed = 2, .dataset_size = 10}), ContainsSubstring("seed = 2"));
  CHECK_THROWS_AS(shoal::LoaderState::from_string("shoal-loader-1 seed=1 epoch=-1 place=0 dataset_size=3"),
                  std::invalid_argument);
  CHECK_THROWS_AS(shoal::LoaderState::from_string("something"), std::invalid_argument);
  DataLoader unordered({.in_order = false}, Numbers{10});
  CHECK_THROWS_AS(unordered.state_dict(), std::logic_error);
}

TEST_CASE("DataLoader: with in_order = false every batch comes once, whichever is ready first") {
  DataLoader loader({.batch_size = 5, .num_workers = 3, .in_order = false}, Numbers{100});
  std::vector<std::int64_t> all = flat(one_epoch(loader));
  std::ranges::sort(all);
  CHECK(all == counting(100));
}

TEST_CASE("DataLoader: a batch sampler says the batches") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.num_workers = workers}, Numbers{10},
                    shoal::BatchSampler({.batch_size = 4}, shoal::SequentialSampler(10)));
  CHECK(loader.size() == 3);
  CHECK(one_epoch(loader) == std::vector<std::vector<std::int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  auto it = loader.begin();
  CHECK(loader.state_dict().place == 1);
  CHECK_THROWS_WITH(
      DataLoader({.batch_size = 2}, Numbers{10}, shoal::BatchSampler({.batch_size = 4}, shoal::SequentialSampler(10))),
      ContainsSubstring("batch sampler"));
}

std::atomic<int> initialized_as{-1};

struct TellsInit {
  std::int64_t size() const { return 4; }
  at::Tensor get(std::int64_t) const { return at::full({1}, initialized_as.load(), at::kLong); }
  int encodable = 0;
};

TEST_CASE("DataLoader: worker_init_fn runs in each worker before its first batch") {
  DataLoader loader({.num_workers = 1, .worker_init_fn = [](int worker) { initialized_as = 40 + worker; }},
                    TellsInit{});
  for (const at::Tensor& batch : loader) CHECK(first_column(batch).front() == 40);
  CHECK(initialized_as == -1);
}

// From sample 400 on, calls for fresh memory end the worker.
void forbid_fresh_memory() {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : {SYS_mmap, SYS_munmap, SYS_mremap, SYS_ftruncate, SYS_fallocate}) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, std::uint32_t(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(125);
}

struct Frugal {
  at::Tensor images;
  bool wastes = false;
  std::int64_t size() const { return images.size(0); }
  at::Tensor get(std::int64_t index) const { return images[index]; }
  at::Tensor get_batch(std::span<const std::int64_t> indices) const {
    static bool forbidden = false;
    if (indices.front() >= 400 && !std::exchange(forbidden, true)) forbid_fresh_memory();
    if (forbidden && wastes) ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return shoal::select_rows(images, indices);
  }
};

TEST_CASE("DataLoader: in the steady state a worker asks for no fresh memory, and the heap does not grow") {
  const bool wastes = GENERATE(false, true);  // the filter works: it would be noticed
  DataLoader loader({.batch_size = 8, .num_workers = 2, .max_retries = 0},
                    Frugal{at::zeros({1200, 3, 64, 64}, at::kByte), wastes});
  auto epoch = [&] {
    std::uint64_t committed = 0;
    std::int64_t samples = 0;
    for (const at::Tensor& batch : loader) {
      samples += batch.size(0);
      if (samples == 400) committed = shoal::heap_statistics().committed_bytes;
    }
    CHECK(shoal::heap_statistics().committed_bytes == committed);
    return samples;
  };
  if (wastes)
    CHECK_THROWS_AS(epoch(), shoal::LoaderWorkerDied);
  else
    CHECK(epoch() == 1200);
  CHECK(loader.report().deaths.empty() != wastes);
}

TEST_CASE("DataLoader: prefetch_bytes bounds what is made ahead, to one batch at least") {
  shoal::detail::Prefetch prefetch(4, 8, 10'000);
  CHECK(prefetch.batches_ahead() == 1);  // of which nothing is known yet
  prefetch.delivered(1000);
  CHECK(prefetch.batches_ahead() == 10);
  for (int i = 0; i < 50; ++i) prefetch.delivered(0);  // those that fail
  CHECK(prefetch.batches_ahead() == 10);
  for (int i = 0; i < 50; ++i) prefetch.delivered(50'000);
  CHECK(prefetch.batches_ahead() == 1);
}

TEST_CASE("DataLoader: fewer batches are made ahead while every one lies ready, more when the loop waits") {
  shoal::detail::Prefetch prefetch(2, 8, 0);
  for (int i = 0; i < 10'000; ++i) prefetch.taken(true);
  CHECK(prefetch.batches_ahead() == 1);
  prefetch.taken(false);
  CHECK(prefetch.batches_ahead() == 3);
  for (int i = 0; i < 20; ++i) prefetch.taken(false);
  CHECK(prefetch.batches_ahead() == 16);
}

TEST_CASE("DataLoader: memory() says what data set, batches and workers take") {
  DataLoader loader({.batch_size = 16, .num_workers = 2}, rows(64));
  auto it = loader.begin();
  const shoal::LoaderMemory memory = loader.memory();
  CHECK(memory.dataset_bytes >= 64 * 8 * 4);
  REQUIRE(memory.workers.size() == 2);
  CHECK(memory.worker_private_bytes() > 0);
  CHECK(memory.worker_proportional_bytes() >= memory.worker_private_bytes());
  CHECK_THAT(memory.to_string(), ContainsSubstring("pid " + std::to_string(memory.workers[0].pid)));
}

TEST_CASE("DataLoader: from outside its queues have names, and its workers hold the data set") {
  DataLoader loader({.batch_size = 16, .num_workers = 2}, rows(64));
  auto it = loader.begin();
  const auto file = shoal::SessionFile::of_process(::getpid());
  REQUIRE(file);
  const auto memory = loader.memory();
  shoal::SessionView view;
  auto is_named = [&](const auto& worker) {
    return std::any_of(view.processes.begin(), view.processes.end(), [&](const auto& process) {
      return process.pid == worker.pid && process.name.starts_with("loader worker");
    });
  };
  // The first batch is there as soon as one of them has begun.
  do view = look_at(*file, shoal::Pss::kRead);
  while (!std::all_of(memory.workers.begin(), memory.workers.end(), is_named));
  for (const auto& worker : memory.workers) {
    const auto seen = std::find_if(view.processes.begin(), view.processes.end(),
                                   [&](const auto& process) { return process.pid == worker.pid; });
    REQUIRE(seen != view.processes.end());
    CHECK(seen->held_bytes >= memory.dataset_bytes);
    CHECK(seen->usage.private_bytes > 0);
  }
  for (const char* name : {"loader worker results", "loader worker 1 tasks", "loader worker 2 tasks"})
    CHECK(std::any_of(view.queues.begin(), view.queues.end(), [&](const auto& queue) { return queue.name == name; }));
}

TEST_CASE("DataLoader: profile() warms up, measures the batches it is told, also over several epochs") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.batch_size = 4, .num_workers = workers}, Numbers{100});
  int steps = 0;
  const shoal::LoaderProfile profile = loader.profile(10, [&](at::Tensor&) { ++steps; });
  CHECK(steps == 10 + (workers == 0 ? 2 : 4));
  CHECK(profile.batches == 10);
  CHECK(profile.dataset > 0);
  CHECK(profile.wait + profile.step <= profile.total);
  CHECK_THAT(profile.to_string(), ContainsSubstring("bottleneck: "));
  CHECK(loader.profile(60).batches == 60);
  CHECK(loader.state_dict().epoch == 3);
  DataLoader nothing({.batch_size = 101, .drop_last = true}, Numbers{100});
  CHECK(nothing.profile(3).batches == 0);
}

TEST_CASE("DataLoader: what limits a loop is the slower side") {
  shoal::LoaderProfile profile{.batches = 1, .workers = 4, .dataset = 0.03, .collate = 0.01, .step = 0.02};
  shoal::detail::conclude(profile);
  CHECK(std::abs(profile.batches_of_workers - 100) < 1e-9);
  CHECK(std::abs(profile.batches_of_loop - 50) < 1e-9);
  CHECK(profile.bottleneck() == "loop");
  profile.step = 0.001;
  shoal::detail::conclude(profile);
  CHECK(profile.bottleneck() == "workers");
  // What workers could do on CPUs of their own is no matter where the loop waits for them.
  shoal::LoaderProfile waits{.batches = 1, .workers = 8, .dataset = 0.03, .wait = 0.08, .step = 0.02};
  shoal::detail::conclude(waits);
  CHECK(waits.batches_of_workers > waits.batches_of_loop);
  CHECK(waits.bottleneck() == "workers");
  shoal::WorkerSuggestion suggestion{{{0, 10}, {1, 95}, {2, 100}}, 0};
  shoal::detail::conclude(suggestion);
  CHECK(suggestion.recommended == 1);
}

TEST_CASE("DataLoader: suggest_workers() measures every number of workers") {
  DataLoader loader({.batch_size = 4}, Numbers{40});
  const auto suggestion = loader.suggest_workers(5);
  CHECK(suggestion.measured.size() >= 2);
  CHECK(suggestion.measured[0].workers == 0);
  for (const auto& one : suggestion.measured) CHECK(one.batches_per_second > 0);
}

TEST_CASE("DataLoader: a collate function makes the batches, in workers too") {
  for (const int workers : {0, 1}) {
    DataLoader loader({.batch_size = 3, .num_workers = workers}, Numbers{7},
                      [](const std::vector<at::Tensor>& samples) {
                        std::vector<std::int64_t> values;
                        for (const at::Tensor& sample : samples) values.push_back(sample[0].item<std::int64_t>());
                        return std::pair(static_cast<int>(samples.size()), values);
                      });
    std::vector<int> sizes;
    std::vector<std::int64_t> all;
    for (const auto& [size, values] : loader) {
      sizes.push_back(size);
      all.insert(all.end(), values.begin(), values.end());
    }
    CHECK(sizes == std::vector<int>{3, 3, 1});
    CHECK(all == counting(7));
  }
}

TEST_CASE("DataLoader: bad options are refused by name and value, at the constructor") {
  const Numbers numbers{10};
  CHECK_THROWS_WITH(DataLoader({.batch_size = 0}, numbers), ContainsSubstring("batch_size is 0"));
  CHECK_THROWS_WITH(DataLoader({.num_workers = -1}, numbers), ContainsSubstring("num_workers is -1"));
  CHECK_THROWS_WITH(DataLoader({.prefetch_factor = 0}, numbers), ContainsSubstring("prefetch_factor is 0"));
  CHECK_THROWS_WITH(DataLoader({.num_workers = 100000}, numbers), ContainsSubstring("num_workers is 100000"));
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, numbers, shoal::SequentialSampler(10)), ContainsSubstring("shuffle"));
  CHECK_THROWS_WITH(DataLoader({}, Numbers{0}), ContainsSubstring("0 samples"));
  CHECK_THROWS_AS(DataLoader({.batch_size = -5}, numbers), std::invalid_argument);
}

TEST_CASE("DataLoader: a sampler's index out of range is refused with its value, when the loop begins") {
  DataLoader loader({.num_workers = 1}, Numbers{10}, shoal::SequentialSampler(11));
  CHECK_THROWS_WITH(loader.begin(), ContainsSubstring("10") && ContainsSubstring("10 samples"));
  CHECK_THROWS_AS(loader.begin(), std::invalid_argument);
}

TEST_CASE("DataLoader: an iterator of a loop that a later one has ended says so") {
  DataLoader loader({.batch_size = 1, .num_workers = 1}, Numbers{10});
  auto first = loader.begin();
  auto second = loader.begin();
  CHECK_THROWS_AS(++first, std::logic_error);
  ++second;
  CHECK(first_column(*second).front() == 1);
}

TEST_CASE("DataLoader: MNIST batches of two workers are those of the files") {
  at::Tensor images = at::arange(200 * 28 * 28).reshape({200, 28, 28}).to(at::kByte);
  const shoal::MnistDataset dataset{images, at::arange(200)};
  DataLoader loader({.batch_size = 32, .shuffle = true, .num_workers = 2}, dataset);
  std::int64_t samples = 0;
  for (const auto& [data, target] : loader) {
    CHECK(data.equal(images.index_select(0, target)));
    samples += target.size(0);
  }
  CHECK(samples == 200);
}
