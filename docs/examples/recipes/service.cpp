// A service whose workers are killed while it answers: every request is answered, each once, and new workers take the
// places of the dead.
//
//     service [REQUESTS]      1000 unless said otherwise
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/pool.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

struct Request {
  int number;
  at::Tensor values;
};

struct Answer {
  int number;
  double sum;
};

Answer answer(Request request) { return {request.number, request.values.sum().item<double>()}; }

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int count = argc > 1 ? std::max(10, std::stoi(argv[1])) : 1000;
  // A request may be computed twice, by a worker that is killed and by the next one; it is answered once. The third
  // death of one request would be its WorkerDied: a request that kills its workers does not take the service along.
  shoal::Pool pool(
      {.processes = 2, .on_worker_death = shoal::OnWorkerDeath::retry, .max_retries = 2, .num_threads = 1});
  const std::vector<int> first = pool.pids();
  std::set<int> seen(first.begin(), first.end());

  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back({i, at::full({32, 32}, float(i % 100))});
  int right = 0, killed = 0;
  for (const Answer& got : pool.imap(answer, requests)) {
    right += got.number == right && got.sum == 1024.0 * (got.number % 100);
    if (right % (count / 5) == count / 10) {  // five times, in the middle of the requests
      const std::vector<int> now = pool.pids();
      seen.insert(now.begin(), now.end());
      ::kill(now[killed % now.size()], SIGKILL);
      ++killed;
    }
  }
  for (const int pid : pool.pids()) seen.insert(pid);  // who was killed last has a successor, too
  fmt::print("{} of {} requests answered in order, {} workers killed, {} seen\n", right, count, killed, seen.size());
  return right == count && killed == 5 && int(seen.size()) == 2 + killed ? 0 : 1;
}
