// The stacks of the threads of a session, asked of the threads themselves and read from outside.
#pragma once

#include <shoal/internal/ipc/observe/session_view.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// A thread, as the kernel knows it, and its stack if it said it.
struct ThreadStack {
  enum class Answer {
    kGiven,
    kBlocked,  // it blocks the signal
    kStopped,  // its process is stopped, or traced
    kDeaf,     // its process handles no questions: another program by now, or it has set another handler
    kRefused,  // the kernel forbids it: another user's
    kSilent,   // no answer came in time
    kEnded,    // the thread is gone
  };

  pid_t thread = 0;
  std::string name;    // as the kernel has it
  char state = '?';    // as ps: R, S, D, T, ...
  std::string kernel;  // where in the kernel it sleeps, if that is known: "futex_wait_queue"
  Answer answer = Answer::kSilent;
  std::vector<std::uint64_t> frames;  // addresses of instructions in the process, innermost call first
};

/// "it blocks signals": why there is no stack; empty for kGiven.
std::string_view reason_of(ThreadStack::Answer answer);

struct ProcessStacks {
  std::uint32_t slot = 0;
  pid_t pid = 0;
  std::vector<ThreadStack> threads;  // by number; the first one is the process's first
};

/// Asks all threads of the living processes of the view, several of each process at once and all processes side by
/// side, and waits for their answers for `patience` in all. A thread is stopped for as long as it takes to walk up its
/// stack, some 50 us. What is read is believed no more than anything else of a session: an answer may be any numbers,
/// but no more of them than fit. `wanted` may choose processes. One thread.
std::vector<ProcessStacks> read_stacks(const SessionFile& file, const SessionView& view,
                                       std::chrono::nanoseconds patience = std::chrono::seconds(1),
                                       const std::function<bool(const SeenProcess&)>& wanted = {});

}  // namespace shoal
