#include <shoal/internal/ipc/observe/thread_stacks.h>

#include <dirent.h>
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

namespace shoal {
namespace {

using std::chrono::milliseconds;
using Answer = ThreadStack::Answer;

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/// What /proc says of a thread's signals. `found` is false if it is gone.
struct ThreadStatus {
  bool found = false;
  char state = '?';
  bool blocks = false, handles = false;  // the signal of questions
};

ThreadStatus read_status(pid_t process, pid_t thread) {
  ThreadStatus status;
  std::ifstream file(fmt::format("/proc/{}/task/{}/status", process, thread));
  auto has_signal = [](const std::string& line) {
    std::uint64_t mask = 0;
    const auto digits = line.find_first_not_of(" \t", line.find(':') + 1);
    if (digits != std::string::npos) std::from_chars(line.data() + digits, line.data() + line.size(), mask, 16);
    return (mask >> (kStackSignal - 1) & 1) != 0;
  };
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("State:")) {
      const auto letter = line.find_first_not_of(" \t", 6);
      if (letter != std::string::npos) status.state = line[letter];
      status.found = true;
    } else if (line.starts_with("Threads:")) {
      if (line.ends_with("\t0")) return {};  // it is ending: what it handles is gone already
    } else if (line.starts_with("SigBlk:")) {
      status.blocks = has_signal(line);
    } else if (line.starts_with("SigCgt:")) {
      status.handles = has_signal(line);
    }
  }
  return status;
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(fmt::format("/proc/{}/task", process).c_str()),
                                                    &::closedir);
  if (!listing) return threads;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc() && thread > 0)
      threads.push_back(thread);
  }
  std::ranges::sort(threads);
  return threads;
}

/// Where in the kernel it sleeps, as far as the kernel shows that.
std::string kernel_function(pid_t process, pid_t thread) {
  std::string function = first_line(fmt::format("/proc/{}/task/{}/wchan", process, thread));
  return function == "0" ? std::string() : function;
}

/// Two readers at once choose different numbers, so that neither takes the other's answer for its own.
std::uint32_t first_number() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) number = std::uint32_t(::getpid());
  return number;
}

/// The questions to one process: each place of its StackRecords takes one at a time.
class Questions {
 public:
  Questions(const SessionFile& file, const SeenProcess& process, ProcessStacks& result, std::uint32_t& number)
      : file_(file), process_(process), result_(result), number_(number) {}

  /// Asks where there is a place, and looks for answers. False if there is nothing more to come.
  bool go_on() {
    bool waits = false;
    for (std::uint32_t place = 0; place < StackRecords::kCount; ++place) {
      Question& question = questions_[place];
      if (question.thread) {
        if (!is_over(question, place)) {
          waits = true;
          continue;
        }
        question.thread = nullptr;
      }
      while (!question.thread && next_ < result_.threads.size()) ask(result_.threads[next_++], question, place);
      waits = waits || question.thread != nullptr;
    }
    return waits;
  }

 private:
  struct Question {
    ThreadStack* thread = nullptr;  // null: the place is free
    std::uint32_t number = 0;
    Deadline again = Deadline::now(), end = Deadline::now();
    Deadline blocked_end = Deadline::now();  // until then a thread that sleeps with the signal blocked may unblock it
  };
  static constexpr milliseconds kAskAgain{50}, kGiveUp{2000}, kLookAgain{1};

  void ask(ThreadStack& thread, Question& question, std::uint32_t place) {
    number_ = (number_ + 1) & StackRequest::kNumberMask;
    question = {&thread, number_, Deadline::after(kAskAgain), Deadline::after(kGiveUp), Deadline::after(kAskAgain)};
    if (!send(thread, number_, place) && !may_unblock(question)) question.thread = nullptr;
  }

  /// The C library blocks all signals for a moment in pthread_create, fork and abort, and a thread that runs is asked
  /// until it is given up. One that sleeps so does it for long.
  static bool may_unblock(Question& question) {
    const ThreadStack& thread = *question.thread;
    if (thread.answer != Answer::kBlocked || question.end.passed()) return false;
    if (thread.state != 'R' && question.blocked_end.passed()) return false;
    question.again = Deadline::after(kLookAgain);
    return true;
  }

  /// False if it is known that no answer will come; the thread then says why.
  bool send(ThreadStack& thread, std::uint32_t number, std::uint32_t place) {
    const ThreadStatus status = read_status(process_.pid, thread.thread);
    auto refuse = [&](Answer why) {
      thread.answer = why;
      return false;
    };
    if (!status.found || status.state == 'Z' || status.state == 'X') return refuse(Answer::kEnded);
    thread.state = status.state;
    if (status.state == 'T' || status.state == 't') return refuse(Answer::kStopped);
    if (!status.handles) return refuse(Answer::kDeaf);
    if (status.blocks) return refuse(Answer::kBlocked);
    siginfo_t info{};
    info.si_signo = kStackSignal;
    info.si_code = SI_QUEUE;
    info.si_pid = ::getpid();
    info.si_uid = ::getuid();
    info.si_value = StackRequest{place, number}.value();
    // Should the pid be another's by now: whoever is not of the session ignores this signal (kStackSignal).
    if (::syscall(SYS_rt_tgsigqueueinfo, process_.pid, thread.thread, kStackSignal, &info) == 0) {
      thread.answer = Answer::kSilent;  // so far
      return true;
    }
    return refuse(errno == ESRCH ? Answer::kEnded : errno == EPERM ? Answer::kRefused : Answer::kSilent);
  }

  bool is_over(Question& question, std::uint32_t place) {
    if (read_answer(question, place)) return true;
    if (question.end.passed()) return true;  // it stays kSilent
    if (!question.again.passed()) return false;
    // Answers may be written over by those to another reader; and of a process that ended or was stopped none comes.
    question.again = Deadline::after(kAskAgain);
    return !send(*question.thread, question.number, place) && !may_unblock(question);
  }

  bool read_answer(const Question& question, std::uint32_t place) {
    const std::uint64_t at = file_.plan().stacks + process_.slot * sizeof(StackRecords) + place * sizeof(StackRecord);
    StackRecord record{}, again{};
    const std::uint32_t done = question.number * 2;
    if (!file_.read(at, record) || copied(record.state) != done) return false;
    if (copied(record.owner) != ProcessTag(process_.slot, process_.generation).word() ||
        copied(record.thread) != std::uint32_t(question.thread->thread))
      return false;
    if (!file_.read(at, again) || copied(again.state) != done) return false;
    const std::uint32_t count = std::min(copied(record.count), StackRecord::kMostFrames);
    for (std::uint32_t i = 0; i < count; ++i) question.thread->frames.push_back(copied(record.frames[i]));
    question.thread->answer = Answer::kGiven;
    return true;
  }

  const SessionFile& file_;
  const SeenProcess& process_;
  ProcessStacks& result_;
  std::uint32_t& number_;
  std::size_t next_ = 0;  // of the result's threads, that was not asked yet
  std::array<Question, StackRecords::kCount> questions_;
};

}  // namespace

std::string_view reason_of(Answer answer) {
  switch (answer) {
    case Answer::kGiven:
      return "";
    case Answer::kBlocked:
      return "it blocks the signal that asks for it (SIGURG)";
    case Answer::kStopped:
      return "the process is stopped";
    case Answer::kDeaf:
      return "the process has another handler of SIGURG, or none";
    case Answer::kRefused:
      return "the process belongs to another user";
    case Answer::kSilent:
      return "no answer came in time";
    case Answer::kEnded:
      return "the thread has ended";
  }
  return "no answer came";
}

std::vector<ProcessStacks> read_stacks(const SessionFile& file, const SessionView& view,
                                       std::chrono::nanoseconds patience,
                                       const std::function<bool(const SeenProcess&)>& wanted) {
  file.begin_look();
  const Deadline deadline = Deadline::after(patience);
  std::vector<ProcessStacks> results;
  results.reserve(view.processes.size());  // Questions refer to its elements
  std::vector<Questions> questions;
  std::uint32_t number = first_number();
  for (const SeenProcess& process : view.processes) {
    if (process.state != SeenProcess::State::kAlive || (wanted && !wanted(process))) continue;
    ProcessStacks& result = results.emplace_back(ProcessStacks{process.slot, process.pid, {}});
    for (const pid_t thread : threads_of(process.pid)) {
      ThreadStack stack;
      stack.thread = thread;
      stack.name = first_line(fmt::format("/proc/{}/task/{}/comm", process.pid, thread));
      result.threads.push_back(std::move(stack));
    }
    questions.emplace_back(file, process, result, number);
  }
  constexpr std::chrono::microseconds kBetweenLooks{100};
  for (;;) {
    bool waits = false;
    for (Questions& each : questions) waits = each.go_on() || waits;
    if (!waits || deadline.passed()) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  for (ProcessStacks& process : results)
    for (ThreadStack& thread : process.threads) {
      thread.kernel = kernel_function(process.pid, thread.thread);
      if (thread.state != '?') continue;
      const ThreadStatus status = read_status(process.pid, thread.thread);  // not asked: time was up
      if (status.found)
        thread.state = status.state;
      else
        thread.answer = Answer::kEnded;
    }
  return results;
}

}  // namespace shoal
