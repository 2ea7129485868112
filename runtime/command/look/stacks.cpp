// shoal stacks: where all threads of a session are.
#include <shoal/internal/runtime/command/look/choose_session.h>
#include <shoal/internal/runtime/command/look/stacks_text.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/runtime/report/stuck_report.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

namespace shoal::command {
namespace {

struct StacksOptions {
  std::string session;
  bool json = false;
};

int show_stacks(const StacksOptions& options) {
  const FoundSession session = choose_session(options.session);
  // First: what threads sleep on has to be what they slept on when they were asked.
  const SessionView view = look_at(session.file);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ProcessStacks> stacks = read_stacks(session.file, view);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const NamedCalls calls = name_calls(stacks);
  std::vector<std::string> stuck;
  for (const SeenGroup& group : look_at_groups(session.file, view, 1)) {
    const auto found = find_stuck(group);
    if (found && !found->missing.empty())
      for (std::string& line : tell_stuck(view, group, stacks, calls)) stuck.push_back(std::move(line));
  }
  const StacksReport report{view, stacks, calls, stuck, seconds};
  const std::string text = options.json ? to_json(report) + "\n" : to_text(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_stacks(CLI::App& shoal, Action& action) {
  CLI::App* stacks = shoal.add_subcommand("stacks", "shows where all threads of a session are");
  auto options = std::make_shared<StacksOptions>();
  add_session_option(*stacks, options->session);
  stacks->add_flag("--json", options->json, "one object; its schema is in the page observing.md");
  stacks->footer(
      "It asks each thread by a signal (SIGURG) and waits for a second at most; a thread stops for some 50 us.\n"
      "System calls that no handler restarts, as poll() and sleep(), end early in the threads that are asked.\n\n"
      "Exit codes:\n"
      "  0    they were shown; those that did not answer say why\n"
      "  1    there is no such session, or there are several and none was named\n"
      "  2    wrong usage: an unknown option");
  stacks->callback([&action, options] { action = [options] { return show_stacks(*options); }; });
}

}  // namespace shoal::command
