#include <shoal/internal/runtime/child/member.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/crash/handler.h>
#include <shoal/internal/runtime/crash/stderr_tail.h>
#include <shoal/internal/runtime/ticket/ticket_text.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/runtime/current_process.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace shoal {
namespace {

std::uint64_t inode_of(int descriptor) {
  struct stat about;
  return ::fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

/// Takes off the version that a ticket's text begins with, "v1,"; -1 if there is none.
int take_version(std::string_view& text) {
  int version = -1;
  if (!text.starts_with('v')) return -1;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc()) return -1;
  text.remove_prefix(std::size_t(end - text.data()));
  if (text.starts_with(',')) text.remove_prefix(1);
  return version;
}

}  // namespace

MemberTicket MemberTicket::make(const ChildBlocks& blocks, int rank, bool output_is_piped, int threads) {
  const ParentTicket launcher = ParentTicket::of_this_process();
  return {.launcher = launcher,
          .blocks = blocks,
          .rank = rank,
          .file = inode_of(launcher.memory),
          .output_is_piped = output_is_piped,
          .threads = threads};
}

std::string MemberTicket::to_value() const { return fmt::format("v{},{}", kVersion, numbers_of(*this)); }

std::optional<MemberTicket> MemberTicket::take() {
  const char* variable = std::getenv(kVariable);
  if (!variable) return std::nullopt;
  const std::string value = variable;
  ::unsetenv(kVariable);
  MemberTicket ticket;
  std::string_view numbers = value;
  const int version = take_version(numbers);
  if (version >= 0 && version != kVersion)
    throw Error(
        fmt::format("{} in the environment has version {}, this program knows version {}: both this program and the "
                    "`shoal` that runs it have to be built with the same shoal",
                    kVariable, version, kVersion));
  if (version < 0 || !read_numbers(numbers, ticket))
    throw Error(fmt::format("{}={} in the environment is nothing that shoal has written: unset it", kVariable, value));
  if (inode_of(ticket.launcher.memory) != ticket.file) return std::nullopt;
  return ticket;
}

void join_as_member(const MemberTicket& ticket) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (ticket.threads > 0 && threads && threads == std::to_string(ticket.threads)) {
    CurrentProcess self = current_process();
    self.num_threads = ticket.threads;
    detail::set_current_process(std::move(self));
  }
  SessionCore& session = ticket.launcher.join();
  const ProcessTag launcher = ticket.launcher.process_tag();
  note_parent(launcher);
  session.describe_self(fmt::format("rank {}", ticket.rank), ticket.rank);
  std::atexit([] { SessionCore::current().leave(); });
  try {
    CrashRecord& record = adopt_crash_record(ticket.blocks.crash_record, launcher);
    install_crash_handler(record);
    keep_stderr_tail();
  } catch (const ParentDied&) {
    // Another program below the same one was first; of the launcher's own death the lifeline tells.
  }
  if (ticket.output_is_piped != 0) std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

}  // namespace shoal
