// Processes that are killed in a step of an optimizer of Hogwild: the others go on, and no count is wrong.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <torch/torch.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;

namespace hogwild_kill_test {

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kRows = 24, kRow = 16, kSurvivorsSteps = 40;

/// Takes one from each element: what the elements are says how many steps came to them.
void count_down(Tensors& parameters, hogwild::Optimizer& optimizer, bool sparse) {
  for (at::Tensor& parameter : parameters)
    parameter.mutable_grad() =
        sparse ? torch::sparse_coo_tensor(torch::arange(kRows).unsqueeze(0), torch::ones({kRows, kRow}), {kRows, kRow})
               : torch::ones({kRows, kRow});
  optimizer.step();
}

void die_in_a_step(Tensors parameters, hogwild::SGD optimizer, bool sparse, std::string label, int skip) {
  at::set_num_threads(1);
  optimizer.attach(parameters);
  kill_at(label.c_str(), skip);
  for (int step = 0; step < 1000; ++step) count_down(parameters, optimizer, sparse);
}

void survive(Tensors parameters, hogwild::SGD optimizer, bool sparse) {
  at::set_num_threads(1);
  optimizer.attach(parameters);
  for (int step = 0; step < kSurvivorsSteps; ++step) count_down(parameters, optimizer, sparse);
}

struct Death {
  const char* label;
  std::int64_t begun, finished;  // of the victim's steps, at its first pass
  bool striped_only = false, sparse_only = false, bounded_only = false;
};

}  // namespace

TEST_CASE("hogwild kill: a process killed anywhere in a step costs that step and nothing else") {
  const std::vector<Death> deaths{{.label = "hogwild.come.taken", .begun = 0, .finished = 0, .bounded_only = true},
                                  {.label = "hogwild.come.counts", .begun = 0, .finished = 0, .bounded_only = true},
                                  {.label = "hogwild.step.begun", .begun = 1, .finished = 0},
                                  {.label = "hogwild.stripe.locked", .begun = 1, .finished = 0, .striped_only = true},
                                  {.label = "hogwild.stripe.updated", .begun = 1, .finished = 0, .striped_only = true},
                                  {.label = "hogwild.row.updated", .begun = 1, .finished = 0, .sparse_only = true},
                                  {.label = "hogwild.parameter.updated", .begun = 1, .finished = 0},
                                  {.label = "hogwild.step.updated", .begun = 1, .finished = 0},
                                  {.label = "hogwild.step.finished", .begun = 1, .finished = 1},
                                  {.label = "hogwild.clock.advanced", .begun = 1, .finished = 1, .bounded_only = true}};
  at::set_num_threads(1);
  const std::size_t before = heap_bytes_in_use();
  int killed = 0;
  for (const Death& death : deaths)
    for (const bool sparse : {false, true})
      for (const auto locking : {hogwild::Locking::none, hogwild::Locking::striped})
        for (const bool bounded : {false, true}) {
          const bool striped = locking == hogwild::Locking::striped;
          if ((death.striped_only && !striped) || (death.sparse_only && !sparse) || (death.bounded_only && !bounded))
            continue;
          INFO(death.label << (sparse ? ", sparse" : ", dense") << (striped ? ", striped" : "")
                           << (bounded ? ", bounded" : ""));
          Tensors parameters;
          for (int i = 0; i < 2; ++i) parameters.push_back(share_memory_(torch::zeros({kRows, kRow})));
          hogwild::SGD optimizer(parameters, {.lr = 1},
                                 {.locking = locking,
                                  .stripe_bytes = 5 * kRow * sizeof(float),
                                  .staleness_bound = bounded ? std::optional<std::int64_t>(2) : std::nullopt});
          Process victim({}, die_in_a_step, parameters, optimizer, sparse, std::string(death.label), 0);
          Process survivor({}, survive, parameters, optimizer, sparse);
          victim.start();
          survivor.start();
          victim.join();
          CHECK(victim.exitcode() == -SIGKILL);
          killed += victim.exitcode() == -SIGKILL;
          survivor.result();  // would not end if a lock stayed held, or if somebody waited for the dead one
          count_down(parameters, optimizer, sparse);  // goes through every lock
          const std::int64_t others = kSurvivorsSteps + 1;
          CHECK(optimizer.steps() == others + death.begun);
          CHECK(optimizer.finished_steps() == others + death.finished);
          // With locks no survivor's update is lost; without, an element may have lost some of them.
          for (const at::Tensor& parameter : parameters) {
            const double least = parameter.min().item<double>(), most = parameter.max().item<double>();
            CHECK(least >= -double(others + death.begun));
            CHECK(most <= (striped ? -double(others + death.finished) : -1.0));
          }
        }
  CHECK(killed == 56);
  CHECK(heap_bytes_in_use() == before);
}

namespace {

void step_for_ever(int seed, Tensors parameters, hogwild::Adam optimizer, Event started) {
  at::set_num_threads(1);
  optimizer.attach(parameters);
  torch::manual_seed(seed);
  for (int step = 0;; ++step) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = 2 * (parameter.detach() - 1);
    optimizer.step();
    if (step == 20) started.set();
  }
}

}  // namespace

TEST_CASE("hogwild kill: processes killed at any moment leave an optimizer that goes on to the minimum") {
  at::set_num_threads(1);  // a kernel's threads for each small stripe would wait for each other
  for (const auto locking : {hogwild::Locking::none, hogwild::Locking::striped})
    for (int round = 0; round < 6 * test::test_scale(); ++round) {
      INFO("round " << round << (locking == hogwild::Locking::striped ? ", striped" : ""));
      torch::manual_seed(round);
      Tensors parameters{share_memory_(torch::randn({300, 40})), share_memory_(torch::randn({77}))};
      hogwild::Adam optimizer(parameters, {.lr = 0.05},
                              {.locking = locking, .stripe_bytes = 1024, .staleness_bound = 8});
      std::vector<Process<void>> processes;
      std::vector<Event> started(3);
      for (int i = 0; i < 3; ++i) {
        processes.emplace_back(ProcessOptions{}, step_for_ever, i, parameters, optimizer, started[std::size_t(i)]);
        processes.back().start();
      }
      for (Event& event : started) event.wait();
      for (auto& process : processes) {
        process.kill();
        process.join();
      }
      CHECK(optimizer.steps() - optimizer.finished_steps() <= 3);
      CHECK(optimizer.steps() >= optimizer.finished_steps());
      for (int step = 0; step < 400; ++step) {
        for (at::Tensor& parameter : parameters) parameter.mutable_grad() = 2 * (parameter.detach() - 1);
        optimizer.step();
      }
      for (const at::Tensor& parameter : parameters)
        CHECK(torch::allclose(parameter, torch::ones_like(parameter), 0.05, 0.05));
    }
}

}  // namespace hogwild_kill_test
