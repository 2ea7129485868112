#include <shoal/internal/runtime/child/child_main.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/crash/handler.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/runtime/crash/stderr_tail.h>
#include <shoal/internal/runtime/crash/traced_call.h>
#include <shoal/internal/runtime/environment/local_rank.h>
#include <shoal/internal/runtime/os/process_title.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/hooks.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>

namespace shoal {
namespace {

void report_failure(Channel& channel, const FailureReport& report, const StartHeader& header) {
  if (header.prints_failure)
    std::fprintf(stderr, "shoal: process '%s' (pid %d) raised %s: %s\n", header.name.c_str(), int(::getpid()),
                 report.raised.front().type.c_str(), report.raised.front().message.c_str());
  Encoder message;
  Channel::begin(message, ChannelMessage::kFailure);
  encode(message, report);
  channel.send(message);
}

void become(const StartHeader& header) {
  detail::set_current_process({header.name, header.rank, header.nprocs, header.num_threads});
  detail::set_works_for(header.works_for);
  SessionCore::current().describe_self(header.rank < 0 ? header.name : header.name + " " + std::to_string(header.rank),
                                       header.rank);
  set_process_title(header.name, header.rank);
  set_start_method(header.start_method);
  for (const auto& [name, value] : header.environment) ::setenv(name.c_str(), value.c_str(), 1);
  // Before threads are made: each has the set of the one that made it. Refused if a CPU went off line meanwhile:
  // then it runs anywhere.
  if (!header.cpus.words.empty()) header.cpus.bind_this_thread();
  if (header.num_threads > 0) hooks::set_threads(header.num_threads);
}

/// What the user's function wrote must come out; static destructors must not run: those of libtorch take
/// more than 100 ms, and those of a forked child would act on what belongs to its parent.
[[noreturn]] void leave(int code) {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  if (Session::exists()) SessionCore::current().leave();
  ::_exit(code);
}

/// What the start methods differ in: how the call and what the child shall know of itself get here.
using Prepare = std::function<std::unique_ptr<PreparedCall>(Channel&, StartHeader&)>;

void make_call(Channel& channel, StartHeader& header, const Prepare& prepare, CrashRecord& record) {
  std::unique_ptr<PreparedCall> call = prepare(channel, header);
  become(header);
  Encoder result;
  Channel::begin(result, ChannelMessage::kResult);
  record.phase = ChildPhase::kInFunction;
  const std::uint64_t since = trace::now();
  call->call(header.rank, result);
  if (trace::is_on()) trace::write(TraceKind::kRun, since, trace::now(), header.name, 0, std::uint64_t(::getpid()));
  call.reset();  // the arguments let go of what they hold before anyone can see the result
  channel.send(result);
}

[[noreturn]] void run(const ChildBlocks& lent, ProcessTag parent, StartHeader header, const Prepare& prepare) {
  int code = 0;
  try {
    note_parent(parent);
    SHOAL_KILL_POINT("child.slot_taken");
    CrashRecord& record = adopt_crash_record(lent.crash_record, parent);
    SHOAL_KILL_POINT("child.record_adopted");
    record.phase = ChildPhase::kStarting;
    install_crash_handler(record);
    keep_stderr_tail();
    SHOAL_KILL_POINT("child.watched");
    Channel channel = Channel::adopt(lent.channel, parent);
    SHOAL_KILL_POINT("child.channel_adopted");
    try {
      traced_call([&] { make_call(channel, header, prepare, record); });
      record.phase = ChildPhase::kReturned;
    } catch (...) {
      code = 1;
      record.phase = ChildPhase::kReturned;
      SHOAL_KILL_POINT("child.caught");
      FailureReport report{record.time, describe_current_exception()};
      // First of all into the record: there it arrives whatever comes, also if the heap is full.
      note_exception(report.raised.front().type, report.raised.front().message);
      SHOAL_KILL_POINT("child.noted");
      report_failure(channel, report, header);
    }
  } catch (const ParentDied&) {
    code = 1;  // nobody waits for a report
  } catch (const std::exception& error) {
    // Not even the report got through: no memory, or a channel that is none.
    std::fprintf(stderr, "shoal: process '%s' (pid %d) cannot report to its parent: %s\n", header.name.c_str(),
                 int(::getpid()), error.what());
    code = 1;
  }
  SHOAL_KILL_POINT("child.reported");
  leave(code);
}

}  // namespace

void prepare_forks() {
  prepare_crash_handler();
  prepare_stderr_tail();
}

void run_started_child(const ChildBlocks& lent, ProcessTag parent) noexcept {
  run(lent, parent, {}, [](Channel& channel, StartHeader& header) {
    std::optional<Received> message = channel.receive();
    if (!message) throw Error("a started process found no start message");
    Decoder decoder = std::move(*message).decoder();
    if (decode<ChannelMessage>(decoder) != ChannelMessage::kStart) throw DecodeError("not a start message");
    header = decode<StartHeader>(decoder);
    auto entry = reinterpret_cast<TaskEntry>(find_function(header.entry));
    return entry(header.function.build_id.empty() ? nullptr : find_function(header.function), decoder);
  });
}

void run_forked_child(const ChildBlocks& lent, const StartHeader& header, Task& task, Fd ready) noexcept {
  run(lent, SessionCore::current().forked_from(), header, [&](Channel&, StartHeader&) {
    SessionCore::current().adopt_inherited_holds();
    // Whether the parent reads it or is dead makes no difference here.
    [[maybe_unused]] auto written = ::write(ready.get(), "", 1);
    ready.reset();
    return task.prepare_inherited();
  });
}

}  // namespace shoal
