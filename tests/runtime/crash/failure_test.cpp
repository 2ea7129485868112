#include <shoal/runtime/failure.h>

#include <shoal/ipc/codec.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

/// The failure that spawn throws.
template <class Failure, class... Arguments>
Failure failure_of(Arguments&&... arguments) {
  try {
    spawn(std::forward<Arguments>(arguments)...);
  } catch (const Failure& failure) {
    return failure;
  }
  FAIL("nothing was thrown");
  std::abort();
}

struct Misfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_CASE("failure: an exception arrives with type, text, rank, pid and name") {
  FOR_EACH_METHOD(method);
  Queue<int> pids(4);
  auto fail = [](int rank, Queue<int> to) {
    if (rank != 1) return;
    to.put(::getpid());
    throw Misfit("no such file: data.bin");
  };
  const SpawnOptions options{.nprocs = 2, .start_method = method, .name = "trainer"};
  const auto failure = failure_of<ProcessRaised>(options, fail, pids);
  CHECK(failure.rank() == 1);
  CHECK(failure.pid() == pids.get());
  CHECK(failure.name() == "trainer");
  CHECK_THAT(failure.exception_type(), EndsWith("Misfit"));
  CHECK(failure.exception_message() == "no such file: data.bin");
  CHECK_THAT(failure.what(), StartsWith("rank 1 (pid ") && EndsWith("Misfit: no such file: data.bin"));
}

TEST_CASE("failure: what is thrown need not be a std::exception") {
  FOR_EACH_METHOD(method);
  const SpawnOptions options{.start_method = method};
  const auto failure = failure_of<ProcessRaised>(options, [](int) { throw 42; });
  CHECK(failure.exception_type() == "int");
}

TEST_CASE("failure: a rank killed by a signal is named with it") {
  FOR_EACH_METHOD(method);
  const SpawnOptions options{.nprocs = 3, .start_method = method};
  auto die = [](int rank, int number) {
    if (rank == 2) ::raise(number);
    for (;;) ::pause();
  };
  const auto killed = failure_of<ProcessExited>(options, die, SIGKILL);
  CHECK(killed.rank() == 2);
  CHECK(killed.signal() == SIGKILL);
  CHECK(killed.signal_name() == "SIGKILL");
  CHECK_FALSE(killed.exit_code());
  CHECK_THAT(killed.what(), StartsWith("rank 2 (pid ") && EndsWith("was killed by SIGKILL"));
  CHECK(failure_of<ProcessExited>(options, die, SIGUSR1).signal() == SIGUSR1);
}

void throw_misfit() { throw Misfit("cannot leave"); }

TEST_CASE("failure: crashes of every kind are reported as what they are") {
  FOR_EACH_METHOD(method);
  const SpawnOptions options{.start_method = method};
  CHECK(failure_of<ProcessExited>(options, [](int) { std::abort(); }).signal() == SIGABRT);
  CHECK(failure_of<ProcessExited>(options, [](int) { std::terminate(); }).signal() == SIGABRT);
  CHECK(failure_of<ProcessExited>(options, [](int) noexcept { throw_misfit(); }).signal() == SIGABRT);
}

TEST_CASE("failure: an exit of its own is no return") {
  FOR_EACH_METHOD(method);
  const SpawnOptions options{.start_method = method};
  CHECK(failure_of<ProcessExited>(options, [](int) { std::exit(3); }).exit_code() == 3);
  CHECK(failure_of<ProcessExited>(options, [](int) { ::_exit(4); }).exit_code() == 4);
  CHECK(failure_of<ProcessExited>(options, [](int) {
          ::_exit(0);
          return 1;
        }).exit_code() == 0);
  // As sys.exit(0) in a function of torch.multiprocessing.
  CHECK_NOTHROW(spawn(options, [](int) { std::exit(0); }));
}

TEST_CASE("failure: a child that dies before it took its arguments is reported, and they are free again") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  const SpawnOptions options{.start_method = method};
  CHECK_THROWS_AS(
      spawn(
          options, [](int, Queue<int>, std::string) { ::_exit(9); }, Queue<int>(4), std::string(100'000, 'x')),
      ProcessExited);
}

TEST_CASE("failure: the first one ends the others, also those that ignore SIGTERM or are stopped") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(8);
  auto work = [](int rank, Queue<int> to, Queue<int> go) {
    if (rank == 0) ::signal(SIGTERM, SIG_IGN);
    to.put(::getpid());
    if (rank == 3) {
      go.get();
      throw Misfit("the root cause");
    }
    if (rank == 1) ::raise(SIGSTOP);
    for (;;) ::pause();
  };
  Queue<int> go(1);
  auto context = start_processes({.nprocs = 4, .start_method = method, .grace_period = std::chrono::milliseconds(20)},
                                 work, ready, go);
  for (int i = 0; i < 4; ++i) ready.get();
  const auto processes = test::watch(context.pids());
  test::wait_until_stopped(context.pids()[1]);
  CHECK_FALSE(context.join(std::chrono::milliseconds(0)));
  go.put(1);
  CHECK_THROWS_WITH(context.join(), ContainsSubstring("rank 3") && ContainsSubstring("the root cause"));
  CHECK(test::all_end(processes));
  // It stays what it was.
  CHECK_THROWS_AS(context.join(), ProcessRaised);
}

TEST_CASE("failure: of several that are seen at once, a death comes before what it caused") {
  FOR_EACH_METHOD(method);
  Queue<int> queue(1);
  auto work = [](int rank, Queue<int> from) {
    if (rank == 1) ::raise(SIGKILL);
    from.get();  // raises PeerDied or is ended
  };
  for (int round = 0; round < 5; ++round) {
    auto context = start_processes({.nprocs = 2, .start_method = method}, work, queue);
    // Both have ended, or will not before they are told to.
    CHECK_THROWS_AS(context.join(), ProcessExited);
  }
}

struct Unwritable {
  int value = 0;
};

}  // namespace

template <>
struct Codec<Unwritable> {
  static constexpr std::uint64_t schema() { return schema_hash("Unwritable"); }
  static void encode(Encoder&, const Unwritable& value) {
    if (value.value == 1) throw Misfit("this value cannot be written");
  }
  static Unwritable decode(Decoder&) { throw Misfit("this value cannot be read"); }
};

namespace {

TEST_CASE("failure: arguments and results that cannot be written or read") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  const SpawnOptions options{.start_method = method};
  // At the call, before anything was started.
  CHECK_THROWS_AS(spawn(options, [](int, Unwritable) {}, Unwritable{1}), Misfit);
  CHECK(failure_of<ProcessRaised>(
            options, [](int, Unwritable) {}, Unwritable{2})
            .exception_message() == "this value cannot be read");
  CHECK(failure_of<ProcessRaised>(options, [](int) { return Unwritable{1}; }).exception_message() ==
        "this value cannot be written");
  CHECK_THROWS_AS(spawn(options, [](int) { return Unwritable{2}; }), Misfit);
}

}  // namespace
}  // namespace shoal
