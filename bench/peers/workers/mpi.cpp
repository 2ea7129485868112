// Collectives by MPI: built once against Open MPI and once against MPICH, run by the launcher of each.
#include <mpi.h>

#include <memory>
#include <vector>

#include "bench/collectives/measure.h"

namespace {

class Mpi final : public shoal::bench::Collectives {
 public:
  Mpi(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::span<float> memory(std::size_t floats) override {
    memory_.push_back(std::make_unique<float[]>(floats));
    return {memory_.back().get(), floats};
  }
  void forget() override { memory_.clear(); }

  void all_reduce(std::span<float> data) override {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), int(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(std::span<float> input, std::span<float> output) override {
    MPI_Allgather(input.data(), int(input.size()), MPI_FLOAT, output.data(), int(input.size()), MPI_FLOAT,
                  MPI_COMM_WORLD);
  }
  void reduce_scatter(std::span<float> input, std::span<float> output) override {
    MPI_Reduce_scatter_block(input.data(), output.data(), int(output.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_to_all(std::span<float> input, std::span<float> output) override {
    const int part = int(input.size()) / ranks_;
    MPI_Alltoall(input.data(), part, MPI_FLOAT, output.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
  }
  void broadcast(std::span<float> data, int root) override {
    MPI_Bcast(data.data(), int(data.size()), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void send(std::span<float> data, int to) override {
    MPI_Send(data.data(), int(data.size()), MPI_FLOAT, to, 0, MPI_COMM_WORLD);
  }
  void recv(std::span<float> data, int from) override {
    MPI_Recv(data.data(), int(data.size()), MPI_FLOAT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  int rank_, ranks_;
  std::vector<std::unique_ptr<float[]>> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Mpi collectives(rank, ranks);
  const int code = shoal::bench::answer_collectives(collectives, argc, argv);
  MPI_Finalize();
  return code;
}
