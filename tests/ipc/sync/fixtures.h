// What the tests of locks, semaphores, events, conditions, barriers, values and arrays have in common.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

namespace shoal::test {

/// A T in shared memory, made before the forks that use it.
template <class T>
class InHeap {
 public:
  InHeap() : hold_(allocate_shared(sizeof(T))), value_(new(hold_.data()) T{}) {}
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  Hold hold_;
  T* value_;
};

/// Reads a message that holds `value` as if it held a To.
template <class To, class From>
To decode_as(const From& value) {
  Encoder encoder;
  encode(encoder, value);
  Decoder::Handles handles;
  for (const HoldRef& ref : encoder.handles()) handles.push_back(Hold::from_transit(ref));
  encoder.sent();
  Decoder decoder(encoder.bytes(), std::move(handles));
  return decode<To>(decoder);
}

/// Waits, without a limit of its own (the watchdog has one), until condition() is true.
template <class Condition>
void until(Condition&& condition) {
  while (!condition()) ::usleep(100);
}

/// Waits until the child sleeps.
inline void until_asleep(const Forked& child) {
  until([&] {
    std::ifstream file("/proc/" + std::to_string(child.pid()) + "/stat");
    std::string line;
    std::getline(file, line);
    const auto name_end = line.rfind(')');
    return name_end != std::string::npos && name_end + 2 < line.size() && line[name_end + 2] == 'S';
  });
}

/// SHOAL_TEST_SEED, or a new one: print it by CAPTURE.
inline unsigned test_seed() {
  const char* text = std::getenv("SHOAL_TEST_SEED");
  return text ? unsigned(std::strtoul(text, nullptr, 10)) : std::random_device()();
}

/// Kills the child at an instruction that nobody chose, within `range` of now.
inline void kill_at_random(Forked& child, std::mt19937& random, std::chrono::microseconds range) {
  std::uniform_int_distribution<long> delay(0, range.count() * 1000);
  const auto at = std::chrono::steady_clock::now() + std::chrono::nanoseconds(delay(random));
  while (std::chrono::steady_clock::now() < at) {
  }
  child.kill();
}

/// Stops a child and returns when it stands still.
inline void stop(const Forked& child) {
  child.signal(SIGSTOP);
  int status;
  while (::waitpid(child.pid(), &status, WUNTRACED) != child.pid()) {
  }
  if (!WIFSTOPPED(status)) throw Error("a child that was to be stopped had ended before");
}

/// A number of children that run the same body.
class Children {
 public:
  template <class Body>
  Children(int count, Body body) {
    for (int i = 0; i < count; ++i) children_.push_back(std::make_unique<Forked>([body, i] { body(i); }));
  }
  Forked& operator[](int index) { return *children_[std::size_t(index)]; }
  bool all_end_well() {
    bool well = true;
    for (auto& child : children_) well = child->join() == 0 && well;
    return well;
  }

 private:
  std::vector<std::unique_ptr<Forked>> children_;
};

}  // namespace shoal::test
