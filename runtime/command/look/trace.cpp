// shoal trace: what all processes of a session do, on one time line.
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/ipc/observe/tracer.h>
#include <shoal/internal/runtime/command/look/choose_session.h>
#include <shoal/internal/runtime/command/look/chrome_trace.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace shoal::command {
namespace {

/// Short enough that a buffer of 8192 events is not full before, of a process that does a million a second.
constexpr std::chrono::milliseconds kDrainEvery{5};

volatile sig_atomic_t stopped = 0;

struct TraceOptions {
  std::string session, output = "shoal.json";
  std::string duration = "5s";
};

class Output {
 public:
  explicit Output(const std::string& path) : path_(path), file_(path == "-" ? stdout : std::fopen(path.c_str(), "we")) {
    if (!file_) throw SystemError(fmt::format("opening {}", path), errno);
  }
  Output(const Output&) = delete;
  ~Output() {
    if (file_ && file_ != stdout) std::fclose(file_);
  }
  std::FILE* file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::FILE* file_;
};

void add_open_waits(const SessionFile& file, ChromeTrace& trace) {
  const SessionView view = look_at(file);
  for (const SeenProcess& process : view.processes)
    for (const SeenWait& wait : process.waits) {
      std::string what(wait.what);
      for (const SeenQueue& queue : view.queues)
        if (queue.block == wait.block && !queue.name.empty()) what += " " + queue.name;
      if (process.pid != ::getpid()) trace.add_open_wait(process.pid, wait.thread, what, wait.since, view.time);
    }
}

/// As the kernel has it; empty if the thread has gone already.
std::string name_of_thread(pid_t pid, std::uint32_t thread) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/task/{}/comm", pid, thread)), name);
  return name;
}

/// Those too that wrote nothing.
std::vector<TracedProcess> living_processes(const SessionFile& file) {
  std::vector<TracedProcess> processes;
  for (const SeenProcess& process : look_at(file).processes)
    if (process.pid != ::getpid()) processes.push_back({process.pid, process.name, 0});
  return processes;
}

int trace_session(const TraceOptions& options) {
  const auto duration = parse_duration(options.duration, "--for");
  const FoundSession session = choose_session(options.session);
  const Output output(options.output);
  join_as_observer(session.process, "shoal trace");
  struct sigaction action{};
  action.sa_handler = [](int) { stopped = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  Tracer tracer;
  ChromeTrace trace([&](std::uint64_t word) { return tracer.name_of_wait(word); }, name_of_thread);
  const auto add = [&](const TracedProcess& process, const TraceRecord& record) { trace.add(process, record); };
  const auto end = std::chrono::steady_clock::now() + duration;
  bool interrupted = false;
  while (std::chrono::steady_clock::now() < end && stopped == 0 && !interrupted) {
    interrupted = !tracer.drain(add);
    std::this_thread::sleep_for(kDrainEvery);
  }
  add_open_waits(session.file, trace);
  std::vector<TracedProcess> processes = living_processes(session.file);
  tracer.finish(add);
  for (const TracedProcess& process : tracer.processes()) processes.push_back(process);
  std::uint64_t lost = trace.dropped();
  for (const TracedProcess& process : tracer.processes()) lost += process.lost;
  if (!trace.write(output.file(), processes)) throw SystemError(fmt::format("writing {}", output.path()), errno);
  std::fprintf(stderr, "shoal: %zu events of %zu processes in %s%s%s\n", trace.events(), tracer.processes().size(),
               output.path().c_str(),
               lost == 0 ? "" : fmt::format("; {} more were lost, since they came too fast", lost).c_str(),
               interrupted ? "; it ended early, because this process was held up for more than a second" : "");
  return 0;
}

}  // namespace

std::chrono::nanoseconds parse_duration(const std::string& text, const std::string& what) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(end);
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "m" || unit == "min" ? 60 : -1;
  if (!(value > 0) || factor < 0 || !(value * factor <= 86400))
    throw std::invalid_argument(fmt::format("{} is '{}': give a time up to a day, as 5s, 200ms or 2m", what, text));
  return std::chrono::nanoseconds(std::int64_t(value * factor * 1e9));
}

void add_trace(CLI::App& shoal, Action& action) {
  CLI::App* trace = shoal.add_subcommand("trace", "records what all processes of a session do, for Perfetto");
  auto options = std::make_shared<TraceOptions>();
  add_session_option(*trace, options->session);
  trace->add_option("--for", options->duration, "how long: 5s, 200ms, 2m; Ctrl-C ends it early")
      ->type_name("TIME")
      ->capture_default_str();
  trace->add_option("-o,--output", options->output, "the file, - for standard output")
      ->type_name("FILE")
      ->capture_default_str();
  trace->footer(
      "Open the file at https://ui.perfetto.dev or in chrome://tracing. One trace at a time; what a process writes "
      "faster\n"
      "than it is read is lost, and counted.\n\n"
      "Exit codes:\n"
      "  0    the file was written\n"
      "  1    there is no such session, it is being traced already, or the file cannot be written\n"
      "  2    wrong usage: an unknown option\n"
      "  4    an option has a bad value");
  trace->callback([&action, options] { action = [options] { return trace_session(*options); }; });
}

}  // namespace shoal::command
