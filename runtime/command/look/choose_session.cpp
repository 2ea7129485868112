#include <shoal/internal/runtime/command/look/choose_session.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/observe/process_usage.h>
#include <shoal/ipc/error.h>

namespace shoal::command {

void add_session_option(CLI::App& command, std::string& name_or_pid) {
  command
      .add_option("session", name_or_pid,
                  "the pid of any of its processes, or the name under which it listens; may be left out where you have "
                  "one")
      ->type_name("");
}

FoundSession choose_session(const std::string& name_or_pid) {
  if (!name_or_pid.empty()) return find_session(name_or_pid);
  std::vector<FoundSession> all = find_sessions();
  if (all.empty()) throw Error("no session of yours runs here");
  if (all.size() == 1) return std::move(all.front());
  std::string list;
  for (const FoundSession& session : all) {
    std::string command = command_line_of(session.process);
    if (command.size() > 60) command = command.substr(0, 57) + "...";
    list += fmt::format("\n  {:>8}  {}", session.process, command);
  }
  throw Error(fmt::format("{} sessions run here: say which one, by a pid{}", all.size(), list));
}

}  // namespace shoal::command
