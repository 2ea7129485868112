#include <shoal/internal/runtime/child/member.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/crash/handler.h>
#include <shoal/internal/runtime/crash/stderr_tail.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace shoal {
namespace {

std::uint64_t inode_of(int descriptor) {
  struct stat about;
  return ::fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

}  // namespace

MemberTicket MemberTicket::make(HoldRef crash_record, int rank, bool output_is_piped) {
  const Session::Descriptors session = Session::current().descriptors();
  return {.launcher = ::getpid(),
          .launcher_tag = Session::current().self().word(),
          .memory = session.memory,
          .liveness = session.liveness,
          .lifeline = lifeline_of_this_process(),
          .crash_record = crash_record,
          .rank = rank,
          .file = inode_of(session.memory),
          .output_is_piped = output_is_piped};
}

std::string MemberTicket::to_value() const {
  return fmt::format("{},{},{},{},{},{},{},{},{},{}", launcher, launcher_tag, memory, liveness, lifeline,
                     crash_record.block.value, crash_record.word, rank, file, int(output_is_piped));
}

std::optional<MemberTicket> MemberTicket::take() {
  const char* variable = std::getenv(kVariable);
  if (!variable) return std::nullopt;
  const std::string value = variable;
  ::unsetenv(kVariable);
  MemberTicket ticket;
  unsigned long long record = 0, file = 0;
  int piped = 0, end = 0;
  const int got = std::sscanf(value.c_str(), "%d,%u,%d,%d,%d,%llu,%u,%d,%llu,%d%n", &ticket.launcher,
                              &ticket.launcher_tag, &ticket.memory, &ticket.liveness, &ticket.lifeline, &record,
                              &ticket.crash_record.word, &ticket.rank, &file, &piped, &end);
  if (got != 10 || std::size_t(end) != value.size())
    throw Error(fmt::format("{}={} in the environment is nothing that shoal has written: unset it", kVariable, value));
  ticket.crash_record.block.value = record;
  ticket.file = file;
  ticket.output_is_piped = piped != 0;
  if (inode_of(ticket.memory) != ticket.file) return std::nullopt;
  return ticket;
}

void join_as_member(const MemberTicket& ticket) {
  die_with_lifeline(Fd(ticket.lifeline));
  Session& session = Session::join({ticket.memory, ticket.liveness});
  const auto launcher = ProcessTag::from_word(ticket.launcher_tag);
  note_parent(launcher);
  session.describe_self(fmt::format("rank {}", ticket.rank), ticket.rank);
  std::atexit([] { Session::current().leave(); });
  try {
    CrashRecord& record = adopt_crash_record(ticket.crash_record, launcher);
    install_crash_handler(record);
    keep_stderr_tail();
  } catch (const ParentDied&) {
    // Another program below the same one was first; of the launcher's own death the lifeline tells.
  }
  if (ticket.output_is_piped) std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

}  // namespace shoal
