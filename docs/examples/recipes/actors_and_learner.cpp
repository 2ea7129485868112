// Actors that play with the newest policy and write what they see into a replay buffer, and a learner that draws
// batches from it: buffer and policy are shared tensors, nothing is sent.
//
//     actors_and_learner [STEPS]      of the learner, 400 unless said otherwise
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/value.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>
#include <string>

constexpr std::int64_t kStates = 4, kActions = 4, kCapacity = 1024, kBatch = 64, kWrittenAStep = 32;

struct Progress {
  std::int64_t written = 0;  // transitions, since the beginning
  std::int64_t learned = 0;  // steps
  bool over = false;
};

// The same memory in every process, and the condition that announces all changes.
struct Replay {
  at::Tensor transitions;  // float [kCapacity, 3]: state, action, reward; the oldest is overwritten
  at::Tensor values;       // float [kStates, kActions]: the policy, what the learner expects of an action
  shoal::Value<Progress> progress;
  shoal::Condition changed;
};

// The world: in state s only action s + 1 pays.
float reward_of(std::int64_t state, std::int64_t action) { return action == (state + 1) % kActions ? 1.0F : 0.0F; }

void act(int rank, Replay replay) {
  std::mt19937 chance(rank);
  auto below = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(chance); };
  for (;;) {
    const std::int64_t state = below(kStates);
    const bool explores = below(3) == 0;
    // Read while the learner writes: old elements or new ones, which is all that a policy needs.
    const std::int64_t action = explores ? below(kActions) : replay.values[state].argmax().item<std::int64_t>();
    const float reward = reward_of(state, action);

    std::unique_lock guard(replay.changed);
    // No further ahead of the learner than that: otherwise it would learn only what the first policy saw.
    replay.changed.wait_for([&] {
      const Progress now = replay.progress.load();
      return now.over || now.written < (now.learned + 4) * kWrittenAStep + kBatch;
    });
    Progress now = replay.progress.load();
    if (now.over) return;
    auto rows = replay.transitions.accessor<float, 2>();
    auto row = rows[now.written % kCapacity];
    row[0] = float(state), row[1] = float(action), row[2] = reward;
    ++now.written;
    replay.progress.store(now);  // last: an actor that is killed before leaves a row that does not count
    if (now.written % kWrittenAStep == 0) replay.changed.notify_all();
  }
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int steps = argc > 1 ? std::stoi(argv[1]) : 400;
  Replay replay{at::zeros({kCapacity, 3}), at::zeros({kStates, kActions}), shoal::Value<Progress>(),
                shoal::Condition()};
  shoal::share_memory_(replay.transitions);
  shoal::share_memory_(replay.values);
  auto actors = shoal::start_processes({.nprocs = 2, .name = "actor"}, act, replay);

  for (int step = 0; step < steps; ++step) {
    at::Tensor batch;
    {
      std::unique_lock guard(replay.changed);
      replay.changed.wait_for([&] { return replay.progress.load().written >= kBatch + step * kWrittenAStep; });
      const std::int64_t there = std::min(replay.progress.load().written, kCapacity);
      batch = replay.transitions.index_select(0, at::randint(there, {kBatch}, at::kLong));  // a copy
    }
    const at::Tensor place = batch.select(1, 0).mul(float(kActions)).add(batch.select(1, 1)).to(at::kLong);
    at::Tensor expected = replay.values.view({kStates * kActions});
    const at::Tensor errors = batch.select(1, 2) - expected.index_select(0, place);
    expected.index_add_(0, place, errors, 0.1);  // the new policy, for all actors at once
    std::unique_lock guard(replay.changed);
    replay.progress.update([](Progress now) { return Progress{now.written, now.learned + 1, now.over}; });
    replay.changed.notify_all();
  }
  {
    std::unique_lock guard(replay.changed);
    replay.progress.update([](Progress now) { return Progress{now.written, now.learned, true}; });
    replay.changed.notify_all();
  }
  actors.join();
  int right = 0;
  double farthest = 0;
  for (std::int64_t state = 0; state < kStates; ++state) {
    const std::int64_t action = replay.values[state].argmax().item<std::int64_t>();
    right += action == (state + 1) % kActions;
    farthest = std::max(farthest, std::abs(1 - replay.values[state][action].item<double>()));
  }
  fmt::print("{} transitions, {} steps: right in {} of {} states, values at most {:.3f} off\n",
             replay.progress.load().written, steps, right, kStates, farthest);
  return right == kStates && farthest < 0.05 ? 0 : 1;
}
