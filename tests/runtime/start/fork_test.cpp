#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

TEST_CASE("fork: closures run, with copies of what they captured") {
  std::vector<int> numbers{1, 2, 3};
  const auto results = spawn({.nprocs = 2, .start_method = StartMethod::fork}, [&](int rank) {
    numbers.push_back(rank);
    return numbers;
  });
  CHECK(results == std::vector<std::vector<int>>{{1, 2, 3, 0}, {1, 2, 3, 1}});
  CHECK(numbers.size() == 3);
  Process process({.start_method = StartMethod::fork}, [&](int factor) { return numbers[2] * factor; }, 7);
  process.start();
  CHECK(process.result() == 21);
}

TEST_CASE("fork: closures may own what cannot be copied, and take what cannot cross") {
  int pointee = 5;
  auto owned = std::make_unique<int>(6);
  Process process(
      {.start_method = StartMethod::fork}, [owned = std::move(owned)](int* p) { return *p * *owned; }, &pointee);
  process.start();
  CHECK(process.result() == 30);
}

TEST_CASE("fork: options made while the program runs are looked at then") {
  int captured = 1;
  SpawnOptions options;
  options.start_method = StartMethod::fork;
  CHECK(spawn(options, [&](int rank) { return rank + captured; }) == std::vector{1});
  options.start_method = StartMethod::spawn;
  CHECK_THROWS_WITH(spawn(options, [&](int rank) { return rank + captured; }),
                    ContainsSubstring("captures") && ContainsSubstring("spawn"));
}

TEST_CASE("fork: captured handles work in the child whatever the parent does to its own") {
  auto queue = std::make_unique<Queue<std::string>>(4);
  Queue<std::string> answers(4);
  Process process({.start_method = StartMethod::fork}, [copy = *queue, answers]() mutable {
    copy.put(answers.get());
    answers.put(copy.get() + "!");
  });
  process.start();
  queue.reset();
  answers.put("still there");
  process.join();
  CHECK(answers.get() == "still there!");
}

TEST_CASE("fork: handles of children are inert in a forked copy") {
  Queue<int> ready(1);
  Process sibling(
      {},
      [](Queue<int> q) {
        q.put(1);
        q.put(2);
        q.put(3);
      },
      ready);
  sibling.start();
  auto look = [&](int) {
    std::string error;
    try {
      sibling.kill();
      sibling.join();
    } catch (const std::invalid_argument& refused) {
      error = refused.what();
    }
    Process<void> taken(std::move(sibling));  // and destroyed
    return error;
  };
  CHECK_THAT(spawn({.start_method = StartMethod::fork}, look)[0], ContainsSubstring("child of process"));
  CHECK(sibling.is_alive());
  CHECK(ready.get() == 1);
}

TEST_CASE("fork: refuses where other threads would be lost, naming them, and can be told to go ahead") {
  std::atomic<bool> stop{false};
  std::atomic<bool> runs{false};
  std::thread other([&] {
    ::pthread_setname_np(::pthread_self(), "bystander");
    runs = true;
    runs.notify_all();
    stop.wait(false);
  });
  runs.wait(false);
  auto nothing = [](int) {};
  CHECK_THROWS_WITH(spawn({.start_method = StartMethod::fork}, nothing),
                    ContainsSubstring("1 other thread") && ContainsSubstring("bystander"));
  CHECK_NOTHROW(spawn({.start_method = StartMethod::fork, .fork_despite_threads = true}, nothing));
  CHECK_NOTHROW(spawn({.start_method = StartMethod::forkserver}, nothing));
  stop = true;
  stop.notify_all();
  other.join();
  CHECK_NOTHROW(spawn({.start_method = StartMethod::fork}, nothing));
}

std::atomic<bool> refuse{false};

TEST_CASE("fork: refuses where a layer above objects, with its reason") {
  register_fork_refusal([]() -> const char* { return refuse ? "the device is in use" : nullptr; });
  refuse = true;
  CHECK_THROWS_WITH(spawn({.start_method = StartMethod::fork}, [](int) {}), ContainsSubstring("the device is in use"));
  refuse = false;
  CHECK_NOTHROW(spawn({.start_method = StartMethod::fork}, [](int) {}));
}

}  // namespace
}  // namespace shoal
