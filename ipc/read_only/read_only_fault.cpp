#include <shoal/internal/ipc/read_only/read_only_fault.h>

#include <errno.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace shoal {
namespace {

struct sigaction before;  // written once, before the handler is there
std::atomic<void (*)(int, siginfo_t*, void*)> observer{nullptr};

/// Text put together without the C library, in a signal handler.
class Line {
 public:
  Line(char* text, std::size_t capacity) : text_(text), capacity_(capacity) {}
  void add(const char* words, std::size_t length) {
    length = std::min(length, capacity_ - size_);
    std::memcpy(text_ + size_, words, length);
    size_ += length;
  }
  void add(const char* words) { add(words, std::strlen(words)); }
  void add(std::uint64_t number) {
    char digits[20];
    std::size_t first = sizeof digits;
    do digits[--first] = char('0' + number % 10);
    while (number /= 10);
    add(digits + first, sizeof digits - first);
  }
  std::size_t size() const { return size_; }

 private:
  char* text_;
  std::size_t capacity_, size_ = 0;
};

/// Whoever was there before decides what comes of it; without anyone it ends the process.
void pass_on(int signal, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;  // a fault that is ignored would repeat itself for ever
    ::sigaction(signal, &plain, nullptr);
    // Not every fault repeats itself (one that arm64's memory tags tell late does not), nor does what was sent. So it is
    // sent again, with all that the kernel said, and arrives when this handler returns.
    if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signal, info) != 0)
      ::syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  char fault[256], text[512];
  if (const std::size_t length = describe_read_only_fault(signal, info, fault, sizeof fault)) {
    if (auto* note = observer.load()) note(signal, info, context);
    Line line(text, sizeof text - 1);
    line.add("shoal: WriteToReadOnlyTensor: process '");
    // No new slot is taken here: without one it has no name.
    SessionCore& session = SessionCore::current();
    if (ProcessTag self = session.self_if_known()) {
      const char* name = session.record(self.slot()).name;
      line.add(name, ::strnlen(name, sizeof session.record(0).name));
    }
    line.add("' (pid ");
    line.add(std::uint64_t(::getpid()));
    line.add(") ");
    line.add(fault, length);
    text[line.size()] = '\n';
    (void)!::write(2, text, line.size() + 1);
  }
  pass_on(signal, info, context);
  errno = error;
}

}  // namespace

void install_read_only_fault_handler() {
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, nullptr, &before);
  ::sigaction(SIGSEGV, &action, nullptr);
}

bool is_read_only_fault_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &on_fault;
}

void observe_read_only_faults(void (*note)(int, siginfo_t*, void*)) { observer = note; }

std::size_t describe_read_only_fault(int signal, const siginfo_t* info, char* text, std::size_t capacity) noexcept {
  // Not what was sent by kill(), nor what is not mapped: in the view only writing is forbidden.
  if (signal != SIGSEGV || info->si_code != SEGV_ACCERR || capacity == 0) return 0;
  const ReadOnlyPlace place = find_read_only(info->si_addr);
  if (!place.found) return 0;
  Line line(text, capacity - 1);
  line.add("wrote to the read-only ");
  line.add(place.label, place.label_size);
  line.add(" at byte ");
  line.add(place.byte);
  text[line.size()] = '\0';
  return line.size();
}

}  // namespace shoal
