#include <shoal/internal/runtime/exec/early_session.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/process/made_at.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/crash/stack.h>
#include <shoal/internal/runtime/crash/symbols.h>
#include <shoal/ipc/error.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>

namespace shoal {
namespace {

std::atomic<bool> is_early{false};

/// The calls that led to it, from the first one on that is not shoal's, up to what calls static initializers.
std::string place() {
  const auto record = std::make_unique<CrashRecord>();
  record->magic = CrashRecord::kMagic;
  record->version = CrashRecord::kVersion;
  note_calls(*record, session_made_at());
  std::string text;
  int shown = 0;
  for (const StackFrame& frame : symbolize(read_crash_record(*record).frames)) {
    if (shown == 0 && frame.function.starts_with("shoal::")) continue;
    if (++shown > 3 || frame.function == "call_init" || frame.function.starts_with("__libc_start")) break;
    text += fmt::format("\n  {} {}", shown == 1 ? "in" : "called by", frame.text());
  }
  return text;
}

}  // namespace

void note_early_session() noexcept { is_early = Session::exists(); }

void refuse_early_session() {
  if (!is_early) return;
  const std::string where = place();
  throw std::logic_error(
      "a lock, queue or other handle was made before shoal::init, at namespace scope or above it in main(): a started "
      "process, which is this program again, would make one of its own there, and be cut off from this process. Make "
      "handles after shoal::init and pass them as arguments; at namespace scope keep a std::optional that main() "
      "fills." +
      (where.empty() ? "" : " The first one was made" + where));
}

}  // namespace shoal
