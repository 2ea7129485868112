// How many messages, or bytes, a second go one way through a queue? With 1, 2 and 4 producers and as many consumers,
// each a process; of bytes, of tensors that are shared already, of fresh ones (one copy), and of memory that the
// queue lends. The peers do the same; memcpy is the floor of the copies.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <list>

#include "bench/report/message_cases.h"
#include "bench/report/report.h"

namespace {

using namespace shoal::bench;
using shoal::Barrier;
using shoal::Queue;

using Packet = std::array<std::uint8_t, 64>;

/// How the messages of a flow are made, one kind a type.
struct PacketSource {
  using Message = Packet;
  Packet packet{};
  PacketSource(const Queue<Packet>&, std::size_t) {}
  void put(Queue<Packet>& queue) { queue.put(packet); }
};
struct SharedTensors {
  using Message = at::Tensor;
  std::vector<at::Tensor> tensors;  // more than are on their way at once
  std::size_t next = 0;
  SharedTensors(const Queue<at::Tensor>&, std::size_t bytes) : tensors(200) {
    for (at::Tensor& tensor : tensors) tensor = shoal::empty_shared({std::int64_t(bytes)}, at::kByte);
  }
  void put(Queue<at::Tensor>& queue) {
    queue.put(tensors[next]);
    next = (next + 1) % tensors.size();
  }
};
struct FreshTensors {
  using Message = at::Tensor;
  at::Tensor tensor;
  FreshTensors(const Queue<at::Tensor>&, std::size_t bytes) : tensor(at::ones({std::int64_t(bytes)}, at::kByte)) {}
  void put(Queue<at::Tensor>& queue) { queue.put(tensor); }
};
struct LoanedBytes {
  using Message = shoal::SharedBytes;
  std::size_t bytes;
  LoanedBytes(const Queue<shoal::SharedBytes>&, std::size_t bytes) : bytes(bytes) {}
  void put(Queue<shoal::SharedBytes>& queue) {
    shoal::SharedBytes loaned = queue.loan(bytes);
    *loaned.data() = std::byte(1);
    queue.put(loaned);
  }
};
struct LoanedTensors {
  using Message = at::Tensor;
  std::size_t bytes;
  LoanedTensors(const Queue<at::Tensor>&, std::size_t bytes) : bytes(bytes) {}
  void put(Queue<at::Tensor>& queue) {
    at::Tensor loaned = shoal::empty_shared({std::int64_t(bytes)}, at::kByte);
    *static_cast<char*>(loaned.data_ptr()) = 1;
    queue.put(loaned);
  }
};

template <class Source>
void produce(Queue<typename Source::Message> queue, Barrier barrier, std::uint64_t bytes, int each, int rounds) {
  Source source(queue, bytes);
  for (int round = 0; round < rounds; ++round) {
    barrier.wait();
    for (int i = 0; i < each; ++i) source.put(queue);
    barrier.wait();
  }
}

template <class Message>
void consume(Queue<Message> queue, Barrier barrier, int each, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    barrier.wait();
    for (int i = 0; i < each; ++i) queue.get();
    barrier.wait();
  }
}

/// Messages a second of each round but the first.
template <class Source>
std::vector<double> rates(const Flow& flow, int sides) {
  using Message = typename Source::Message;
  Queue<Message> queue(flow.in_queue);
  Barrier barrier(2 * sides + 1);
  const int each = flow.messages / sides, rounds = kRounds + 1;
  std::list<shoal::Process<void>> processes;
  for (int i = 0; i < sides; ++i) {
    processes.emplace_back(shoal::ProcessOptions{.name = "consumer", .num_threads = 1}, consume<Message>, queue,
                           barrier, each, rounds);
    processes.emplace_back(shoal::ProcessOptions{.name = "producer", .num_threads = 1}, produce<Source>, queue, barrier,
                           std::uint64_t(flow.bytes), each, rounds);
  }
  for (auto& process : processes) process.start();
  std::vector<double> samples;
  for (int round = 0; round < rounds; ++round) {
    barrier.wait();
    auto start = std::chrono::steady_clock::now();
    barrier.wait();
    double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0) samples.push_back(each * sides / took);
  }
  for (auto& process : processes) process.join();
  return samples;
}

/// As fast as the elements of a fresh tensor can get into shared memory: into as many buffers, one after the other, as
/// the queue has on their way, in pages that were used before.
std::vector<double> memcpy_rates(const Flow& flow) {
  at::Tensor source = at::ones({std::int64_t(flow.bytes)}, at::kByte);
  std::vector<shoal::SharedBytes> targets;
  for (std::size_t i = 0; i < flow.in_queue; ++i) targets.emplace_back(flow.bytes);
  std::vector<double> samples;
  for (int round = 0; round <= kRounds; ++round) {
    double took = seconds([&] {
      for (int i = 0; i < flow.messages; ++i)
        std::memcpy(targets[std::size_t(i) % targets.size()].data(), source.const_data_ptr(), flow.bytes);
    });
    if (round > 0) samples.push_back(flow.messages / took);
  }
  return samples;
}

template <class Source>
void measure(Report& report, const Flow& flow, int sides = 1) {
  auto samples = rates<Source>(flow, sides);
  report.add("shoal", flow_case(flow, sides), "1/s", samples);
}

void in_gigabytes(Report& report, const std::string& impl, const Flow& flow, std::vector<double> samples) {
  for (double& sample : samples) sample *= double(flow.bytes) / 1e9;
  report.add(impl, flow_case(flow), "GB/s", samples);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("one way through a queue, beside its peers");
  bool peers = true;
  std::string only;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  app.add_option("--only", only, "only the flows whose name begins so");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  Report report("queue_throughput");
  auto wanted = [&](const Flow& flow) { return std::string(flow.what).starts_with(only); };

  constexpr Flow kSharedTensors{"shared tensor 64 B", 64, 200'000, 128};
  constexpr Flow kSmallFresh{"fresh tensor 64 B", 64, 200'000, 128};
  for (int sides : {1, 2, 4}) {
    if (wanted(kSmallFlow)) measure<PacketSource>(report, kSmallFlow, sides);
    if (wanted(kSharedTensors)) measure<SharedTensors>(report, kSharedTensors, sides);
    for (const Flow& flow : {kSmallFlow, kSharedTensors})
      if (sides > 1) report.ask_of_case(flow_case(flow, sides), "median", flow_case(flow), 0.5);
  }
  if (wanted(kSmallFresh)) measure<FreshTensors>(report, kSmallFresh);
  for (const Flow& flow : {kMegabyteFlow, kLargeFlow}) {
    if (!wanted(flow)) continue;
    in_gigabytes(report, "memcpy", flow, memcpy_rates(flow));
    in_gigabytes(report, "shoal", flow, rates<FreshTensors>(flow, 1));
    in_gigabytes(report, "memcpy", flow, memcpy_rates(flow));  // again: the machine may be another one by now
    report.ask(flow_case(flow), "median", "memcpy", 0.9);
  }
  // As many at once as the heap keeps idle by default: what is above that is given back, and fetched again.
  constexpr Flow kLoanSizes[] = {
      {"loaned 4 KiB", 4096, 100'000, 4}, kLoanFlow, {"loaned 64 MiB", 64 << 20, 100'000, 4}};
  constexpr Flow kTensorLoans[] = {{"loaned tensor 4 KiB", 4096, 100'000, 4},
                                   {"loaned tensor 64 MiB", 64 << 20, 100'000, 4}};
  for (const Flow& flow : kLoanSizes)
    if (wanted(flow)) measure<LoanedBytes>(report, flow);
  for (const Flow& flow : kTensorLoans)
    if (wanted(flow)) measure<LoanedTensors>(report, flow);

  report.ask_value(flow_case(kSmallFlow), "median", 10e6);
  report.ask_value(flow_case(kSharedTensors), "median", 3e6);
  report.ask_value(flow_case(kSmallFresh), "median", 3e6);
  for (int i : {1, 2}) report.ask_of_case(flow_case(kLoanSizes[i]), "median", flow_case(kLoanSizes[0]), 0.8);
  report.ask_of_case(flow_case(kTensorLoans[1]), "median", flow_case(kTensorLoans[0]), 0.8);
  if (!peers) return 0;
  const std::string question = "queue_throughput";
  report.run_program("unix_socket", {question});
  report.run_program("boost_message_queue", {question});
  report.run_program("zeromq", {question}, "libzmq3-dev");
  report.run_program("iceoryx", {question}, "iceoryx");
  report.run_peer("ipc/" + question);
  for (const char* peer : {"unix socket", "boost", "zeromq", "iceoryx"})
    report.ask(flow_case(kSmallFlow), "median", peer, 1);
  report.ask(flow_case(kSharedTensors), "median", "torch", 1);
  report.ask(flow_case(kLoanFlow), "median", "iceoryx", 1);
}
