#include <shoal/internal/runtime/crash/handler.h>

#include <dlfcn.h>
#include <errno.h>
#include <shoal/internal/ipc/process/stack_answer.h>
#include <shoal/internal/ipc/read_only/read_only_fault.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/runtime/crash/stack.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <typeinfo>

namespace shoal {
namespace {

/// What the parent's exception has as the type of such an end, which is no exception in the process that it ends.
constexpr char kReadOnlyFault[] = "shoal::WriteToReadOnlyTensor";
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

// Of this process; read by signal handlers, so set before those are installed.
CrashRecord* record = nullptr;
pid_t owner = 0;
struct sigaction actions_before[NSIG];
std::terminate_handler terminate_before = nullptr;
alignas(64) char alternate_stack[64 << 10];

/// glibc's last words ("free(): invalid pointer", a failed assertion), which it writes past stdio.
struct AbortMessage {
  unsigned size;
  char text[];
};
AbortMessage* const* abort_message = nullptr;

template <std::size_t kSize>
void copy_text(char (&to)[kSize], const char* text, std::size_t length) {
  length = std::min(length, kSize - 1);
  std::memcpy(to, text, length);
  to[length] = '\0';
}

/// False if another thread is writing: two ends of one process are not told.
bool claim(CrashRecord& to) {
  std::uint32_t nobody = 0;
  const auto self = std::uint32_t(::gettid());
  // The same thread again: an earlier exception or a fault that a handler has mended.
  return to.writer.compare_exchange_strong(nobody, self) || nobody == self;
}

void note_time(CrashRecord& to) {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  to.time = now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

/// What nobody asked for while it was ignored; every other fault of the kernel's ends a process that ignores it.
bool may_be_ignored(int signal, const siginfo_t& info) {
  return info.si_code <= 0 || (signal == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

/// Whoever was there before this handler decides what comes of it.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = actions_before[signal];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    if (before.sa_handler == SIG_IGN && may_be_ignored(signal, *info)) return;
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    ::sigaction(signal, &plain, nullptr);
    // DANGER: not every fault repeats itself. A breakpoint and a system call that a filter refuses are behind it
    // already, a memory error that is told early has no instruction at all: the process would go on as if nothing had
    // been. So it is sent again, with all that the kernel said (a core dump has it), and arrives when this handler
    // returns.
    if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signal, info) != 0)
      ::syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
  }
}

void note_crash(int signal, siginfo_t* info, void* context) {
  if (!own_crash_record() || !claim(*record)) return;
  CrashRecord& to = *record;
  to.signal = signal;
  // The abort at the end of std::terminate: that has told already.
  if (signal == SIGABRT && to.kind.load() == CrashKind::kTerminate) return;
  to.code = info->si_code;
  to.address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  to.type[0] = to.message[0] = '\0';
  if (signal == SIGABRT && abort_message && *abort_message)
    copy_text(to.message, (*abort_message)->text, ::strnlen((*abort_message)->text, sizeof to.message));
  if (describe_read_only_fault(signal, info, to.message, sizeof to.message) != 0)
    copy_text(to.type, kReadOnlyFault, sizeof kReadOnlyFault - 1);
  note_time(to);
  to.kind = CrashKind::kSignal;
  note_stack(to, context);
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (signal == SIGSEGV || signal == SIGBUS) stack_answer::leave_broken_stack();
  note_crash(signal, info, context);
  pass_on(signal, info, context);
  errno = error;
}

/// May allocate, as the language's own handler does: this is no signal handler.
void on_terminate() {
  if (own_crash_record() && claim(*record)) {
    CrashRecord& to = *record;
    note_time(to);
    to.type[0] = to.message[0] = '\0';
    to.kind = CrashKind::kTerminate;
    note_stack(to, nullptr);
    if (std::current_exception()) {
      const ExceptionSummary outermost = describe_current_exception().front();
      note_exception(outermost.type, outermost.message);
      to.kind = CrashKind::kTerminate;
    }
  }
  if (terminate_before) terminate_before();
  std::abort();
}

}  // namespace

CrashRecord* own_crash_record() noexcept { return owner == ::getpid() ? record : nullptr; }

void note_throw(CrashRecord& own) noexcept {
  note_time(own);
  note_stack(own, nullptr);
}

void note_exception(const std::string& type, const std::string& message) noexcept {
  if (!own_crash_record() || !claim(*record)) return;
  copy_text(record->type, type.data(), type.size());
  copy_text(record->message, message.data(), message.size());
  record->kind = CrashKind::kException;
}

void prepare_crash_handler() {
  // A look into every library: in a forked child these are pages that it does not have yet.
  static const bool looked = [] {
    abort_message = static_cast<AbortMessage* const*>(::dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
    return true;
  }();
  (void)looked;
}

void install_crash_handler(CrashRecord& own) {
  const bool again = record != nullptr;  // in a fork of a process that has the handlers
  owner = 0;
  record = &own;
  owner = ::getpid();
  prepare_crash_handler();
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {
    stack = {};
    stack.ss_sp = alternate_stack;
    stack.ss_size = sizeof alternate_stack;
    ::sigaltstack(&stack, nullptr);
  }
  for (int signal : kSignals) {
    struct sigaction action{};
    action.sa_sigaction = &on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    struct sigaction before;
    ::sigaction(signal, &action, &before);
    // In a fork of a process that has both, this handler is below that one already: above it once more, they would call
    // each other for ever.
    if (again && is_read_only_fault_handler(before)) {
      ::sigaction(signal, &before, nullptr);
      continue;
    }
    if (!(before.sa_flags & SA_SIGINFO) || before.sa_sigaction != &on_crash) actions_before[signal] = before;
  }
  observe_read_only_faults(&note_crash);  // also if the user has put a handler on top of this one since
  if (auto before = std::set_terminate(&on_terminate); before != &on_terminate) terminate_before = before;
}

}  // namespace shoal
