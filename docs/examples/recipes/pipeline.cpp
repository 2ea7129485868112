// A pipeline of three stages, read, transform, write, whose queues are short: the reader is never more than a few items
// ahead of the writer, however slow that is, so memory stays what it was.
//
//     pipeline [ITEMS]      2000 unless said otherwise
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/value.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/shared_memory_scope.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

constexpr std::size_t kCapacity = 4;
constexpr int kTransformers = 2;

struct Item {
  int number;
  at::Tensor values;
};
using Items = shoal::Queue<Item>;

// First stage. Returns how far it was ahead of the last stage, at most.
std::int64_t produce(Items raw, shoal::Value<std::int64_t> written, int items) {
  std::int64_t ahead = 0;
  for (int number = 0; number < items; ++number) {
    shoal::SharedMemoryScope scope;
    raw.put({number, at::full({256, 256}, float(number))});  // waits for room: this is the back-pressure
    ahead = std::max(ahead, number + 1 - written.load());
  }
  raw.close();  // the end of the data, for all that read from it
  return ahead;
}

// Second stage, several processes. The last of them ends the third stage's input.
void transform(int /*rank*/, Items raw, Items done, shoal::Value<int> at_work) {
  try {
    for (;;) {
      Item item = raw.get();
      item.values.mul_(2);  // in place: it is the reader's memory, and nobody else has it now
      done.put(item);
    }
  } catch (const shoal::QueueClosed&) {
    if (at_work.fetch_add(-1) == 1) done.close();
  }
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int items = argc > 1 ? std::stoi(argv[1]) : 2000;
  at::set_num_threads(1);  // the stages are what runs in parallel: threads beside them would only take their CPUs
  Items raw(kCapacity), done(kCapacity);
  shoal::Value<std::int64_t> written(0);
  shoal::Process reader({.name = "reader", .num_threads = 1}, produce, raw, written, items);
  reader.start();
  auto transformers = shoal::start_processes({.nprocs = kTransformers, .name = "transform"}, transform, raw, done,
                                             shoal::Value<int>(kTransformers));
  // Third stage, in this process. If a stage dies, nobody closes what it fed: so this one looks after the others.
  double sum = 0;
  std::int64_t ahead = 0;
  const std::chrono::seconds second(1);
  auto looked = std::chrono::steady_clock::now();
  try {
    for (bool more = true; more;) {
      if (std::chrono::steady_clock::now() - looked > second) {
        transformers.join(std::chrono::seconds(0));       // throws what one has failed with
        if (!reader.is_alive()) ahead = reader.result();  // the same
        looked = std::chrono::steady_clock::now();
      }
      try {
        sum += done.get(second).values.mean().item<double>();
        written.fetch_add(1);
      } catch (const shoal::TimeoutError&) {  // it is time to look
      } catch (const shoal::QueueClosed&) {
        more = false;
      } catch (const shoal::PeerDied&) {  // all transformers have, which says it with their names
        transformers.join();
      }
    }
    transformers.join();
    ahead = reader.result();
  } catch (const shoal::ProcessFailed& error) {  // the others end with their handles
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  // Two queues, what each process has in its hands, and what was written but not counted yet.
  const std::int64_t most = 2 * kCapacity + kTransformers + 2;
  fmt::print("{} items written, sum {}; the reader was at most {} ahead (bound {})\n", written.load(), sum, ahead,
             most);
  return sum == double(items) * (items - 1) && ahead <= most ? 0 : 1;
}
