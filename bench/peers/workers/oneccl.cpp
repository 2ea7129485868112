// Collectives by oneCCL, between processes that this program forks (SHOAL_BENCH_RANKS of them): no launcher is needed.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>
#include <vector>

#include "bench/collectives/measure.h"

namespace {

constexpr auto kFloat = ccl::datatype::float32;

class OneCcl final : public shoal::bench::Collectives {
 public:
  OneCcl(int rank, int ranks, const std::shared_ptr<ccl::kvs>& store)
      : rank_(rank), ranks_(ranks), communicator_(ccl::create_communicator(ranks, rank, store)) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::span<float> memory(std::size_t floats) override {
    memory_.push_back(std::make_unique<float[]>(floats));
    return {memory_.back().get(), floats};
  }
  void forget() override { memory_.clear(); }

  void all_reduce(std::span<float> data) override {
    ccl::allreduce(data.data(), data.data(), data.size(), kFloat, ccl::reduction::sum, communicator_).wait();
  }
  void all_gather(std::span<float> input, std::span<float> output) override {
    ccl::allgather(input.data(), output.data(), input.size(), kFloat, communicator_).wait();
  }
  void reduce_scatter(std::span<float> input, std::span<float> output) override {
    ccl::reduce_scatter(input.data(), output.data(), output.size(), kFloat, ccl::reduction::sum, communicator_).wait();
  }
  void all_to_all(std::span<float> input, std::span<float> output) override {
    ccl::alltoall(input.data(), output.data(), input.size() / std::size_t(ranks_), kFloat, communicator_).wait();
  }
  void broadcast(std::span<float> data, int root) override {
    ccl::broadcast(data.data(), data.size(), kFloat, root, communicator_).wait();
  }
  void barrier() override { ccl::barrier(communicator_).wait(); }
  void send(std::span<float> data, int to) override {
    ccl::send(data.data(), data.size(), kFloat, to, communicator_).wait();
  }
  void recv(std::span<float> data, int from) override {
    ccl::recv(data.data(), data.size(), kFloat, from, communicator_).wait();
  }

 private:
  int rank_, ranks_;
  ccl::communicator communicator_;
  std::vector<std::unique_ptr<float[]>> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  const char* given = std::getenv("SHOAL_BENCH_RANKS");
  const int ranks = given ? std::atoi(given) : 2;
  ::setenv("CCL_PROCESS_LAUNCHER", "none", 0);
  ::setenv("CCL_ATL_TRANSPORT", "ofi", 0);
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  // Forked before oneCCL has threads. Rank 0 writes where it can be met, once for each other rank.
  int rank = 0;
  std::vector<pid_t> children;
  const pid_t parent = ::getpid();
  for (int other = 1; other < ranks && rank == 0; ++other) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) return 1;
      rank = other;
    } else {
      children.push_back(child);
    }
  }
  ::setenv("CCL_LOCAL_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("CCL_LOCAL_SIZE", std::to_string(ranks).c_str(), 1);
  ccl::init();
  std::shared_ptr<ccl::kvs> store;
  ccl::kvs::address_type address{};
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
    for (int other = 1; other < ranks; ++other)
      if (::write(ends[1], address.data(), address.size()) != ssize_t(address.size())) return 1;
  } else {
    if (::read(ends[0], address.data(), address.size()) != ssize_t(address.size())) return 1;
    store = ccl::create_kvs(address);
  }
  int code = 0;
  {
    OneCcl collectives(rank, ranks, store);
    code = shoal::bench::answer_collectives(collectives, argc, argv);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return code;
}
