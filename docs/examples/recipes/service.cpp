// A service whose workers are killed while they compute: every request is answered, and new workers take the places of
// the dead.
//
//     service [REQUESTS]      1000 unless said otherwise, at least 10
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/pool.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

struct Request {
  int number;
  bool is_fatal;  // the first worker that begins it is killed
  at::Tensor values;
};

struct Answer {
  int number;
  double sum;
};

at::Tensor the_attempts;  // in each worker, the same memory: how often each request was begun

void count_attempts_in(at::Tensor attempts) { the_attempts = attempts; }

Answer answer(Request request) {
  int& attempts = the_attempts.data_ptr<int>()[request.number];
  if (++attempts == 1 && request.is_fatal) ::raise(SIGKILL);  // as the kernel does when memory is short
  return {request.number, request.values.sum().item<double>()};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int count = argc > 1 ? std::max(10, std::stoi(argv[1])) : 1000;
  at::Tensor attempts = at::zeros({count}, at::kInt);
  shoal::share_memory_(attempts);
  // A request whose worker dies is run again by another one. The third death of one request would be its WorkerDied: a
  // request that kills all its workers does not take the service along.
  shoal::Pool pool({.processes = 2, .on_worker_death = shoal::OnWorkerDeath::retry, .max_retries = 2, .num_threads = 1},
                   count_attempts_in, attempts);
  const std::vector<int> first = pool.pids();

  std::vector<Request> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back({i, i % (count / 5) == count / 10, at::full({32, 32}, float(i % 100))});
  int right = 0, fatal = 0;
  for (const Answer& got : pool.imap(answer, requests)) {
    fatal += requests[got.number].is_fatal;
    right += got.number == right && got.sum == 1024.0 * (got.number % 100);
  }
  const std::vector<int> last = pool.pids();
  const int begun = attempts.sum().item<int>();
  fmt::print("{} of {} requests answered in order, {} workers killed, {} requests run twice\n", right, count, fatal,
             begun - count);
  // Those that a dead worker had, but had not begun, were given to others: nothing but the fatal ones was run twice.
  return right == count && fatal == 5 && begun == count + fatal && last.size() == 2 && last != first ? 0 : 1;
}
