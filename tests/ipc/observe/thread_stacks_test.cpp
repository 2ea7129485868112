// Threads say where they are when somebody looks on, whatever they do at that moment, and none of them suffers by it.
#include <shoal/internal/ipc/observe/thread_stacks.h>

#include <fcntl.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/label.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/simple_queue.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/ipc/observe/own_session.h"
#include "tests/ipc/process/session_fresh.h"
#include "tests/ipc/sync/fixtures.h"

#ifndef __SANITIZE_THREAD__  // it holds signals back until a thread calls something that it knows

using namespace shoal;
using namespace shoal::test;
using Answer = ThreadStack::Answer;

namespace {

ProcessStacks stacks_of(const SessionFile& file, pid_t pid) {
  const auto all =
      read_stacks(file, look_at(file), std::chrono::seconds(30), [&](auto& process) { return process.pid == pid; });
  REQUIRE(all.size() == 1);
  return all[0];
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kOwnBytes = 140;  // with what counts and checks in it
#else
constexpr std::uint64_t kOwnBytes = 64;
#endif
/// Whether a call in the stack lies in the function, of which that many bytes are known to be its own.
bool passes(const ThreadStack& thread, void (*function)(), std::uint64_t bytes = kOwnBytes) {
  const auto begin = reinterpret_cast<std::uint64_t>(function);
  return std::ranges::any_of(thread.frames, [&](std::uint64_t at) { return at >= begin && at < begin + bytes; });
}

[[gnu::noinline]] void pause_here() {
  for (;;) {
    ::pause();
    asm volatile("" ::: "memory");
  }
}

std::atomic<bool> go_on{true};
[[gnu::noinline]] void spin_here() {
  while (go_on.load(std::memory_order_relaxed)) asm volatile("" ::: "memory");  // relaxed: nothing else is passed on
}

/// Allocates, throws and unwinds, each of which a question may interrupt.
void work_hard(const std::atomic<bool>& end) {
  std::vector<std::string> kept(64);
  for (std::size_t i = 0; !end; ++i) {
    kept[i % kept.size()] = std::string(1 + i % 5000, 'x');
    try {
      throw std::runtime_error(kept[i % kept.size()]);
    } catch (const std::exception& error) {
      if (std::string(error.what()) != kept[i % kept.size()]) ::_exit(3);
    }
  }
}

}  // namespace

TEST_CASE("thread stacks: a thread that sleeps and one that runs say where they are, by name") {
  const SessionFile file = own_session();
  SimpleQueue<int> ready;
  Forked child([&] {
    std::thread spins([&] {
      ::prctl(PR_SET_NAME, "spinner");
      ready.put(1);
      spin_here();
    });
    ::prctl(PR_SET_NAME, "sleeper");
    ready.put(2);
    pause_here();
    spins.join();
  });
  ready.get();
  ready.get();
  // Either may be asked before it comes from its put to where it stays.
  until([&] { return passes(stacks_of(file, child.pid()).threads.at(0), &pause_here); });
  until([&] { return passes(stacks_of(file, child.pid()).threads.at(1), &spin_here); });
  const ProcessStacks stacks = stacks_of(file, child.pid());
  REQUIRE(stacks.threads.size() == 2);
  const ThreadStack &first = stacks.threads[0], &second = stacks.threads[1];
  CHECK(first.thread == child.pid());
  CHECK(first.name == "sleeper");
  CHECK(first.answer == Answer::kGiven);
  CHECK(second.name == "spinner");
  CHECK(second.answer == Answer::kGiven);
  CHECK(passes(second, &spin_here));
  CHECK_FALSE(passes(first, &spin_here));
}

TEST_CASE("thread stacks: of more threads than can answer at once all do, and the one who asks answers, too") {
  const SessionFile file = own_session();
  constexpr int kThreads = 3 * int(StackRecords::kCount) + 1;
  SimpleQueue<int> ready;
  Forked child([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        ready.put(1);
        pause_here();
      });
    pause_here();
  });
  for (int i = 0; i < kThreads; ++i) ready.get();
  const auto stacks = read_stacks(file, look_at(file), std::chrono::seconds(30));
  const auto of = [&](pid_t pid) { return std::ranges::find(stacks, pid, &ProcessStacks::pid)->threads; };
  CHECK(of(child.pid()).size() == kThreads + 1);
  for (const ThreadStack& thread : of(child.pid())) CHECK(thread.answer == Answer::kGiven);
  CHECK(of(::getpid()).at(0).answer == Answer::kGiven);
  CHECK(of(::getpid()).at(0).frames.size() > 1);
}

TEST_CASE("thread stacks: a thread that blocks the signal for a moment answers after it") {
  const SessionFile file = own_session();
  SimpleQueue<int> ready;
  Forked child([&] {
    sigset_t all;
    sigfillset(&all);
    ready.put(1);
    auto spin = [](std::chrono::milliseconds time) {
      const auto end = std::chrono::steady_clock::now() + time;
      while (std::chrono::steady_clock::now() < end);
    };
    while (true) {
      ::sigprocmask(SIG_BLOCK, &all, nullptr);
      spin(std::chrono::milliseconds(10));
      ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
      spin(std::chrono::milliseconds(1));
    }
  });
  ready.get();
  for (int i = 0; i < 10 * test_scale(); ++i)
    CHECK(stacks_of(file, child.pid()).threads.at(0).answer == Answer::kGiven);
}

TEST_CASE("thread stacks: threads that allocate, throw and wait in queues are asked again and again, and go on") {
  const SessionFile file = own_session();
  Queue<int> there(4), back(4);
  Forked echo([&] {
    for (int value; (value = there.get()) >= 0;) back.put(value);
  });
  Forked child([&] {
    std::atomic<bool> end{false};
    std::thread works([&] { work_hard(end); });
    for (int i = 0; true; ++i) {
      there.put(i);
      const int value = back.get();
      if (value == -2) break;
      if (value != i) ::_exit(4);
    }
    end = true;
    works.join();
  });
  int given = 0;
  for (int i = 0; i < 100 * test_scale(); ++i)
    for (const pid_t pid : {child.pid(), echo.pid()})
      for (const ThreadStack& thread : stacks_of(file, pid).threads)
        if (thread.answer == Answer::kGiven) ++given;
  CHECK(given >= 200 * test_scale());
  back.put(-2);
  CHECK(child.join() == 0);
  there.put(-1);
  CHECK(echo.join() == 0);
}

TEST_CASE("thread stacks: who cannot answer says why: stopped, blocked, with another handler") {
  const SessionFile file = own_session();
  SimpleQueue<int> ready;
  Forked stopped([&] { stop_here(); });
  Forked blocks([&] {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ready.put(1);
    pause_here();
  });
  Forked deaf([&] {
    ::signal(kStackSignal, SIG_DFL);
    ready.put(1);
    pause_here();
  });
  stopped.wait_until_stopped();
  ready.get();
  ready.get();
  const auto answer_of = [&](const Forked& child) { return stacks_of(file, child.pid()).threads.at(0).answer; };
  CHECK(answer_of(stopped) == Answer::kStopped);
  CHECK(answer_of(blocks) == Answer::kBlocked);
  CHECK(answer_of(deaf) == Answer::kDeaf);
  CHECK(reason_of(Answer::kStopped) == "the process is stopped");
  stopped.signal(SIGCONT);
  CHECK(stopped.join() == 0);  // nothing was sent to it that would wait for it
}

TEST_CASE("thread stacks: processes that are killed while they are asked hold nobody up") {
  const SessionFile file = own_session();
  for (int round = 0; round < 5 * test_scale(); ++round) {
    std::vector<std::unique_ptr<Forked>> children;
    for (int i = 0; i < 4; ++i) children.push_back(std::make_unique<Forked>([] { pause_here(); }));
    const SessionView view = look_at(file);
    std::thread killer([&] {
      for (auto& child : children) child->signal(SIGKILL);
    });
    // Not of this process: a thread that is just beginning blocks all signals.
    for (const ProcessStacks& process :
         read_stacks(file, view, std::chrono::seconds(30), [](auto& seen) { return seen.pid != ::getpid(); }))
      for (const ThreadStack& thread : process.threads)
        CHECK((thread.answer == Answer::kGiven || thread.answer == Answer::kEnded || thread.answer == Answer::kSilent));
    killer.join();
  }
}

TEST_CASE("thread stacks: a question that comes too late, to another program, harms nobody") {
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte;
  CHECK(::read(ready[0], &byte, 1) == 0);  // it has executed
  ::close(ready[0]);
  siginfo_t info{};
  info.si_signo = kStackSignal;
  info.si_code = SI_QUEUE;
  info.si_value = StackRequest{1, 2}.value();
  CHECK(::syscall(SYS_rt_tgsigqueueinfo, pid, pid, kStackSignal, &info) == 0);
  ::kill(pid, SIGTERM);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("thread stacks: an answer of any bytes is no more than that") {
  const SessionFile file = own_session();
  SimpleQueue<int> ready;
  Forked liar([&] {
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      const auto request = StackRequest::of(*info);
      if (!request) return;
      SessionCore& session = SessionCore::current();
      auto* tables = reinterpret_cast<StackRecords*>(session.base() + session.layout().stacks);
      StackRecord& record = tables[session.self().slot()].records[request->place];
      record.owner = session.self().word();
      record.thread = std::uint32_t(::gettid());
      record.count = ~0u;
      for (auto& frame : record.frames) frame = ~std::uint64_t(0);
      record.state = request->number * 2;
    };
    ::sigaction(kStackSignal, &action, nullptr);
    ready.put(1);
    pause_here();
  });
  ready.get();
  const ThreadStack thread = stacks_of(file, liar.pid()).threads.at(0);
  CHECK(thread.answer == Answer::kGiven);
  CHECK(thread.frames.size() == StackRecord::kMostFrames);
}

TEST_CASE("thread stacks: body of a process with a handler of its own", "[.][fresh]") {
  if (!fresh::is_one()) return;
  fresh::run([] {
    static std::atomic<int> heard{0};
    struct sigaction action{};
    action.sa_handler = [](int) { ++heard; };
    ::sigaction(kStackSignal, &action, nullptr);
    SessionCore::current().self();
    const SessionFile file = own_session();
    const bool given = stacks_of(file, ::getpid()).threads.at(0).answer == Answer::kGiven;
    const int before = heard;
    ::raise(kStackSignal);
    fresh::say(given && before == 0 && heard == 1 ? "both" : "one");
  });
}

TEST_CASE("thread stacks: a handler that the program had before gets its own signals, and no questions") {
  FreshProcess fresh("thread stacks: body of a process with a handler of its own");
  CHECK(fresh.read_line() == "both");
  CHECK(fresh.join() == 0);
}

#endif
