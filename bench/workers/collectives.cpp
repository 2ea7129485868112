// How long do collectives and messages from rank to rank take: 8 B to 64 MiB, 2 to 8 ranks, shared and private tensors, and
// all_reduce beside other busy processes? Each result is checked before it is timed. Shoal is called as MPI is, and once
// more as libtorch calls it; the peers are Gloo, Open MPI, MPICH and oneCCL.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/collectives/tensor_bytes.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/point_to_point.h>
#include <shoal/workers/train/process_group.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/busy/busy_processes.h"
#include "bench/collectives/measure.h"
#include "bench/report/report.h"

namespace {

using namespace shoal::bench;

constexpr auto kFloat = c10::ScalarType::Float;

/// Tensors, found again by where their data begin.
class Tensors {
 public:
  explicit Tensors(bool shared) : shared_(shared) {}
  std::span<float> make(std::size_t floats) {
    const auto size = std::int64_t(floats);
    tensors_.push_back(shared_ ? shoal::empty_shared({size}) : at::empty({size}));
    return {tensors_.back().data_ptr<float>(), floats};
  }
  at::Tensor& of(std::span<float> data) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const at::Tensor& tensor) { return tensor.const_data_ptr() == data.data(); });
  }
  void clear() { tensors_.clear(); }

 private:
  bool shared_;
  std::vector<at::Tensor> tensors_;
};

class Shoal final : public Collectives {
 public:
  Shoal(const shoal::ShmGroup& group, int rank, bool shared) : ranks_(group.join(rank)), tensors_(shared) {}
  int rank() const override { return ranks_.rank(); }
  int ranks() const override { return ranks_.world_size(); }
  std::span<float> memory(std::size_t floats) override { return tensors_.make(floats); }
  void forget() override { tensors_.clear(); }

  void all_reduce(std::span<float> data) override { ranks_.all_reduce(region(data), kFloat, shoal::ReduceOp::sum); }
  void all_gather(std::span<float> input, std::span<float> output) override {
    places_.resize(std::size_t(ranks()));
    for (std::size_t rank = 0; rank < places_.size(); ++rank)
      places_[rank] = reinterpret_cast<std::byte*>(output.data() + rank * input.size());
    ranks_.all_gather(region(input), places_, kFloat);
  }
  void reduce_scatter(std::span<float> input, std::span<float> output) override {
    ranks_.reduce_scatter(region(input), reinterpret_cast<std::byte*>(output.data()), kFloat, shoal::ReduceOp::sum);
  }
  void all_to_all(std::span<float> input, std::span<float> output) override {
    parts_.assign(std::size_t(ranks()), input.size_bytes() / std::size_t(ranks()));
    ranks_.all_to_all(region(input), parts_, reinterpret_cast<std::byte*>(output.data()), parts_, kFloat);
  }
  void broadcast(std::span<float> data, int root) override { ranks_.broadcast(region(data), root, kFloat); }
  void barrier() override { ranks_.barrier(); }
  void send(std::span<float> data, int to) override { shoal::send(ranks_, tensors_.of(data), to); }
  void recv(std::span<float> data, int from) override { shoal::recv(ranks_, tensors_.of(data), from); }

 private:
  shoal::Region region(std::span<float> data) { return shoal::TensorBytes(tensors_.of(data), "bench").region(); }

  shoal::Communicator ranks_;
  Tensors tensors_;
  std::vector<std::byte*> places_;
  std::vector<std::size_t> parts_;
};

/// The same through libtorch's process group.
class ShoalOfLibtorch final : public Collectives {
 public:
  ShoalOfLibtorch(const shoal::ShmGroup& group, int rank, bool shared)
      : group_(shoal::init_process_group(group, rank)),
        backend_(group_->getBackend(c10::DeviceType::CPU)),
        tensors_(shared) {}
  int rank() const override { return group_->getRank(); }
  int ranks() const override { return group_->getSize(); }
  std::span<float> memory(std::size_t floats) override { return tensors_.make(floats); }
  void forget() override { tensors_.clear(); }

  void all_reduce(std::span<float> data) override { group_->allreduce(list(data))->wait(); }
  void all_gather(std::span<float> input, std::span<float> output) override {
    backend_->_allgather_base(tensors_.of(output), tensors_.of(input))->wait();
  }
  void reduce_scatter(std::span<float> input, std::span<float> output) override {
    backend_->_reduce_scatter_base(tensors_.of(output), tensors_.of(input))->wait();
  }
  void all_to_all(std::span<float> input, std::span<float> output) override {
    backend_->alltoall_base(tensors_.of(output), tensors_.of(input), no_splits_, no_splits_)->wait();
  }
  void broadcast(std::span<float> data, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(list(data), options)->wait();
  }
  void barrier() override { group_->barrier()->wait(); }
  void send(std::span<float> data, int to) override { group_->send(list(data), to, 0)->wait(); }
  void recv(std::span<float> data, int from) override { group_->recv(list(data), from, 0)->wait(); }

 private:
  std::vector<at::Tensor>& list(std::span<float> data) {
    list_.assign(1, tensors_.of(data));
    return list_;
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;  // the group's names for some calls change from version to version
  Tensors tensors_;
  std::vector<at::Tensor> list_;
  std::vector<std::int64_t> no_splits_;
};

/// How shoal is called.
struct Way {
  const char* impl;
  bool shared, by_libtorch;
};
constexpr Way kWays[] = {{"shoal", true, false},
                         {"shoal, private", false, false},
                         {"shoal, c10d", true, true},
                         {"shoal, c10d, private", false, true}};

/// One rank: the samples of each case.
std::vector<std::vector<double>> rank_of(int rank, shoal::ShmGroup group, int way, std::vector<std::string> words,
                                         double seconds) {
  at::set_num_threads(1);
  const Way& how = kWays[way];
  std::optional<Shoal> plain;
  std::optional<ShoalOfLibtorch> of_libtorch;
  Collectives& collectives = how.by_libtorch ? static_cast<Collectives&>(of_libtorch.emplace(group, rank, how.shared))
                                             : plain.emplace(group, rank, how.shared);
  std::vector<std::vector<double>> samples;
  for (const std::string& word : words) {
    samples.push_back(measure(collectives, case_of(word), seconds));
    if (rank != 0) samples.back().clear();
  }
  return samples;
}

struct Options {
  std::vector<int> ranks{2, 4, 8}, busy{1, 2};
  std::vector<std::string> only, ways;
  std::size_t most_bytes = 64 << 20;
  double seconds = 0.25;
  bool peers = true;
};

void run_shoal(Report& report, const Options& options, int ranks, const std::vector<CollectiveCase>& cases,
               const std::string& suffix) {
  std::vector<std::string> words;
  for (const CollectiveCase& what : cases) words.push_back(what.word());
  for (int way = 0; way < int(std::size(kWays)); ++way) {
    const char* impl = kWays[way].impl;
    if (!options.ways.empty() && std::ranges::find(options.ways, impl) == options.ways.end()) continue;
    const auto samples = shoal::spawn({.nprocs = ranks, .num_threads = 1}, rank_of, shoal::ShmGroup(ranks), way, words,
                                      options.seconds)[0];
    for (std::size_t i = 0; i < cases.size(); ++i)
      for (Figure& figure : figures_of(impl, cases[i].name(ranks) + suffix, samples[i])) report.add(std::move(figure));
  }
}

void run_peers(Report& report, const Options& options, int ranks, const std::vector<CollectiveCase>& cases,
               const std::string& suffix) {
  std::vector<std::string> words;
  for (const CollectiveCase& what : cases) words.push_back(what.word());
  const std::string count = std::to_string(ranks), seconds = std::to_string(options.seconds);
  const auto arguments = [&](const std::string& impl) {
    std::vector<std::string> all{impl, suffix, seconds};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  };
  // One that hangs with more ranks than CPUs is no reason to wait for ever.
  const std::vector<std::string> limit{"timeout", "-k", "5", "400"};
  const auto launched = [&](std::vector<std::string> launcher) {
    launcher.insert(launcher.begin(), limit.begin(), limit.end());
    return launcher;
  };
  const std::vector<std::string> open_mpi{
      "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpiexec.openmpi", "--oversubscribe", "-n",
      count};
  report.run_program("openmpi", arguments("open mpi"), "libopenmpi-dev", launched(open_mpi));
  if (!suffix.empty()) {
    // By itself it binds two ranks to a CPU each; shoal leaves them to the kernel.
    std::vector<std::string> unbound = open_mpi;
    unbound.insert(unbound.end(), {"--bind-to", "none"});
    report.run_program("openmpi", arguments("open mpi, not bound"), "libopenmpi-dev", launched(unbound));
  }
  report.run_program("mpich", arguments("mpich"), "libmpich-dev", launched({"mpiexec.mpich", "-n", count}));
  report.run_program("oneccl", arguments("oneccl"), "oneccl (of the Python registry, by SHOAL_BENCH_ONECCL)",
                     launched({"env", "SHOAL_BENCH_RANKS=" + count}));
  std::vector<std::string> to_gloo{count, suffix, seconds};
  to_gloo.insert(to_gloo.end(), words.begin(), words.end());
  report.run_peer("workers/collectives", to_gloo);
}

void ask(Report& report, int ranks, const std::vector<CollectiveCase>& cases, const std::string& suffix) {
  for (const CollectiveCase& what : cases) {
    const std::string name = what.name(ranks) + suffix;
    if (!suffix.empty()) continue;
    if (ranks > 2) {
      for (const char* impl : {"shoal", "shoal, private"}) report.ask_against_peers(impl, name, "p50", 0.5);
    } else if (what.operation == Operation::all_reduce && what.bytes <= 1 << 10) {
      for (const char* impl : {"shoal", "shoal, private"}) report.ask_against_peers(impl, name, "p50", 1 / 1.2);
    } else if (what.operation == Operation::all_reduce && what.bytes >= 256 << 10) {
      report.ask_against_peers("shoal", name, "p50", 3);
      report.ask_against_peers("shoal, private", name, "p50", 1.2);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("collectives beside the peers");
  Options options;
  app.add_option("--ranks", options.ranks, "how many (2 4 8)");
  app.add_option("--busy", options.busy,
                 "beside how many busy processes all_reduce of two ranks is measured too (1 2)");
  app.add_option("--only", options.only, "operations: all_reduce, barrier, ...");
  app.add_option("--ways", options.ways, "how shoal is called: shoal, 'shoal, private', 'shoal, c10d', ...");
  app.add_option("--most", options.most_bytes, "bytes of the largest case");
  app.add_option("--seconds", options.seconds, "for each case and implementation");
  app.add_flag("--peers,!--no-peers", options.peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  Report report("collectives");
  const auto run = [&](int ranks, std::vector<CollectiveCase> cases, const std::string& suffix) {
    std::erase_if(cases, [&](const CollectiveCase& what) {
      return !options.only.empty() && std::ranges::find(options.only, name_of(what.operation)) == options.only.end();
    });
    if (cases.empty()) return;
    run_shoal(report, options, ranks, cases, suffix);
    if (options.peers) run_peers(report, options, ranks, cases, suffix);
    ask(report, ranks, cases, suffix);
  };
  for (const int ranks : options.ranks) run(ranks, collective_cases(ranks, options.most_bytes), "");
  for (const int others : options.busy) {
    if (others == 0) continue;
    const BusyProcesses busy(others);
    // Where the kernel puts the ranks decides, and it does so for long: each implementation is started several times.
    for (int turn = 0; turn < 3; ++turn)
      run(2, {{Operation::all_reduce, 64}, {Operation::all_reduce, 1 << 10}, {Operation::all_reduce, 64 << 10}},
          fmt::format(", beside {} busy, turn {}", others, turn + 1));
  }
}
