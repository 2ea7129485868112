#include <shoal/internal/runtime/command/run/rank_process.h>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/child/ended.h>
#include <shoal/internal/runtime/child/member.h>
#include <shoal/internal/runtime/crash/oom_kills.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <signal.h>

namespace shoal::command {
namespace {

void append_indented(std::string& text, const std::string& lines, const char* margin) {
  for (std::size_t at = 0; at < lines.size();) {
    const auto end = std::min(lines.find('\n', at), lines.size());
    text += fmt::format("{}{}\n", margin, lines.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace

RankProcess::RankProcess(RankStart start)
    : start_(std::move(start)),
      record_(CrashRecordBlock::create(ChildPhase::kProgram)),
      lent_{.channel = {}, .crash_record = record_.lend()} {
  const MemberTicket ticket = MemberTicket::make(lent_, start_.rank, start_.output_is_piped, start_.threads);
  auto changes = start_.environment;
  changes.emplace_back(MemberTicket::kVariable, ticket.to_value());
  watch_oom_kills();
  note_child_started();
  started_ = std::chrono::steady_clock::now();
  try {
    process_ = exec_program({.path = start_.path,
                             .arguments = start_.arguments,
                             .environment = environment_with(changes),
                             .descriptors = ticket.launcher.descriptors(),
                             .standard = start_.standard,
                             .cpus = start_.cpus,
                             .own_group = true},
                            start_.path, "is it a program of this machine, or a script with a #! line?");
  } catch (...) {
    lent_.take_back();
    throw;
  }
}

bool RankProcess::is_member() const { return bool(SessionCore::current().find(process_.pid)); }

void RankProcess::signal(int number) noexcept {
  if (ended_) return;
  if (number != SIGCONT && number != SIGSTOP) told_to_end_by_ = number;
  const pid_t group = -process_.pid;
  // What a member has started is in its group. It ends that by itself, but can neither stop it nor let it go on when it is
  // stopped itself.
  if (number == SIGKILL || number == SIGSTOP || number == SIGCONT || !is_member())
    // It is this process's child and not reaped: the number is its, and its group's, even if it has ended already.
    ::kill(group, number);
  else
    send_signal(process_.process, number);
  if (number == SIGTERM) ::kill(group, SIGCONT);  // likewise
}

void RankProcess::collect() {
  ::kill(-process_.pid, SIGKILL);  // before it is reaped: until then no other group can have this number
  status_ = reap(process_.process);
  ended_ = true;
  ended_at_ = std::chrono::system_clock::now();
  end_time_ = std::chrono::steady_clock::now().time_since_epoch().count();
  give_back_after(process_.pid, lent_);
  if (status_.succeeded()) return;
  failure_ = failure_of({start_.arguments.front(), start_.rank, process_.pid, StartMethod::spawn}, status_,
                        record_.read(), {}, told_to_end_by_ != 0);
}

bool RankProcess::failed_by_itself() const {
  if (!failure_) return false;
  const int signal = status_.signal;
  return !(told_to_end_by_ != 0 &&
           (signal == SIGTERM || signal == SIGKILL || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT ||
            signal == told_to_end_by_ || status_.code == 128 + SIGTERM || status_.code == 128 + SIGINT));
}

std::pair<int, std::int64_t> RankProcess::failure_order() const {
  // One that was killed from outside says nothing; others then fail because it is gone, with an exception or a code.
  const bool silent = status_.signal != 0 && failure_->time() == 0;
  return {silent ? 0 : 1, failure_->time() != 0 ? failure_->time() : end_time_};
}

std::string RankProcess::report() const {
  using Seconds = std::chrono::duration<double>;
  std::string text = fmt::format("{}\n", failure_->what());
  text += fmt::format("  local rank {}, ended {:%Y-%m-%d %H:%M:%S}, {:.1f} s after its start\n", start_.local_rank,
                      fmt::localtime(std::chrono::system_clock::to_time_t(ended_at_)),
                      Seconds(std::chrono::nanoseconds(end_time_) - started_.time_since_epoch()).count());
  int number = 0;
  for (const StackFrame& frame : failure_->stack_trace()) text += fmt::format("  #{} {}\n", number++, frame.text());
  if (!start_.log.empty()) text += fmt::format("  its standard error is in {}\n", start_.log);
  const std::string tail = start_.error_tail ? start_.error_tail->text() : failure_->stderr_tail();
  if (!tail.empty()) {
    text += "  the end of its standard error:\n";
    append_indented(text, tail, "    | ");
  }
  return text;
}

}  // namespace shoal::command
