#include <shoal/runtime/stop.h>

#include <errno.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

namespace shoal {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};

std::atomic<int> requested{0};
std::atomic<int> last_signal{0};
std::atomic<bool> asked{false};
std::atomic<const std::atomic<std::uint64_t>*> told_to_end{nullptr};

constinit thread_local int holds = 0;  // HeldStops of this thread
constinit thread_local int requested_before_hold = 0;

constinit std::mutex actions_mutex;  // of what follows
int waiting = 0;
struct sigaction actions_before[NSIG];
std::atomic<bool> installed[NSIG];

[[gnu::init_priority(101)]] const AtFork stop_at_fork({
    .stage = ForkStage::kProcess,
    // Not waited for: a handler of the program's may fork, in a thread that has it.
    .in_child = []() noexcept { new (&actions_mutex) std::mutex; },
});

/// As if there were no handler: arrives when the handler that calls this returns.
void act_as_ever(int signal) {
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal, &plain, nullptr);
  ::raise(signal);
}

bool is_told_to_end() {
  const auto* told = told_to_end.load();
  return told && told->load() != 0;
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  last_signal = signal;
  const bool impatient = requested.fetch_add(1) > 0;
  const struct sigaction& before = actions_before[signal];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else if (asked.load() ? impatient && signal == SIGINT : signal == SIGTERM && is_told_to_end()) {
    act_as_ever(signal);
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &on_signal;
}

/// Takes over signals that would end the process, or also those that the program handles.
void install(bool also_handled) {
  for (const int signal : kSignals) {
    struct sigaction before;
    ::sigaction(signal, nullptr, &before);
    const bool plain = !(before.sa_flags & SA_SIGINFO);
    if (is_ours(before) || (plain && before.sa_handler == SIG_IGN)) continue;
    if (!also_handled && !(plain && before.sa_handler == SIG_DFL)) continue;
    actions_before[signal] = before;  // before the handler that reads it
    struct sigaction action{};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    installed[signal] = true;
  }
}

void uninstall() noexcept {
  for (const int signal : kSignals) {
    struct sigaction now;
    ::sigaction(signal, nullptr, &now);
    if (installed[signal].exchange(false) && is_ours(now)) ::sigaction(signal, &actions_before[signal], nullptr);
  }
}

}  // namespace

bool stop_requested() {
  if (!asked.load()) {
    std::lock_guard lock(actions_mutex);
    asked = true;
    install(true);
  }
  return requested.load() > 0;
}

HeldStop::HeldStop() {
  if (holds++ == 0) requested_before_hold = requested.load();
  std::lock_guard lock(actions_mutex);
  if (waiting++ == 0 && !asked.load()) install(false);
}

HeldStop::~HeldStop() {
  --holds;
  std::unique_lock lock(actions_mutex);
  if (--waiting > 0 || asked.load()) return;
  uninstall();
  if (requested.load() == 0) return;
  const int signal = last_signal.load();
  lock.unlock();
  ::kill(::getpid(), signal);  // this very process; as if it had arrived now
}

StopWhenTold::StopWhenTold(const std::atomic<std::uint64_t>& end) {
  std::lock_guard lock(actions_mutex);
  told_to_end = &end;  // before the handler that looks at it
  ++waiting;           // for ever: no HeldStop is the last one
  if (!asked.load()) install(false);
}

StopWhenTold::~StopWhenTold() { told_to_end = nullptr; }

int stop_requests() noexcept { return requested.load(); }
int stop_requests_before_hold() noexcept { return holds > 0 ? requested_before_hold : requested.load(); }
bool stop_is_urgent() noexcept { return requested.load() > 1 && last_signal.load() == SIGINT; }

void reset_stop_signals() noexcept {
  waiting = 0;
  uninstall();
  asked = false;
  told_to_end = nullptr;
  requested = 0;
  holds = 0;
}

}  // namespace shoal
