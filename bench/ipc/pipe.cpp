// How long does a value take through a pipe and back? An int and a shared tensor, against Python's
// multiprocessing.Pipe (with torch's tensors), and a Unix socket pair.
#include <shoal/ipc/pipe.h>

#include <ATen/Parallel.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <unistd.h>

#include "bench/report/message_cases.h"
#include "bench/report/report.h"

namespace {

using namespace shoal::bench;

template <class T>
void echo(shoal::Connection<T> connection) {
  try {
    while (true) connection.send(connection.recv());
  } catch (const shoal::EndOfFile&) {
  }
}

template <class T>
std::vector<double> round_trips(const T& value, int count, int pause_micros) {
  auto [mine, theirs] = shoal::Pipe<T>();
  shoal::Process process({.name = "echo", .num_threads = 1}, echo<T>, theirs);
  process.start();
  theirs.close();
  std::vector<double> samples;
  for (int i = -count / 10; i < count; ++i) {
    if (pause_micros > 0) ::usleep(useconds_t(pause_micros));
    double took = seconds([&] {
      mine.send(value);
      mine.recv();
    });
    if (i >= 0) samples.push_back(took * 1e6);
  }
  mine.close();
  process.join();
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::set_num_threads(1);
  Report report("pipe");
  const std::string of_tensor = "pipe of a shared tensor 4 KiB, busy", asleep = "pipe of an int, both asleep";
  at::Tensor tensor = shoal::empty_shared({4096}, at::kByte);
  report.add_quantile("shoal", kPipeOfInt, "us", round_trips(1, 100'000, 0), 50);
  report.add_quantile("shoal", asleep, "us", round_trips(1, kAsleepRoundTrips, kAsleepMicros), 50);
  report.add_quantile("shoal", of_tensor, "us", round_trips(tensor, 100'000, 0), 50);
  report.run_program("unix_socket", {"pipe"});
  report.run_peer("ipc/pipe");
  report.ask(kPipeOfInt, "p50", "unix socket", 1);
  report.ask(kPipeOfInt, "p50", "multiprocessing", 1);
  report.ask(of_tensor, "p50", "torch", 1);
}
