#include <shoal/internal/runtime/command/look/stacks_text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/text/utf8_fit.h>
#include <shoal/internal/runtime/command/look/session_table.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace shoal::command {
namespace {

using Json = nlohmann::ordered_json;
using Answer = ThreadStack::Answer;

constexpr std::size_t kMostColumns = 60;  // of names that others have written

const SeenWait* wait_of(const SeenProcess* process, pid_t thread) {
  if (!process) return nullptr;
  const auto found = std::ranges::find(process->waits, std::uint32_t(thread), &SeenWait::thread);
  return found == process->waits.end() ? nullptr : &*found;
}

std::string wait_text(const SessionView& view, const SeenWait& wait) {
  const auto queue = std::ranges::find(view.queues, wait.block, &SeenQueue::block);
  const std::string name = queue == view.queues.end() || queue->name.empty() ? "" : " " + queue->name;
  return fmt::format("{}{} {}", wait.what, name, short_seconds(double(view.time - wait.since) * 1e-9));
}

std::string state_text(const SessionView& view, const ThreadStack& thread, const SeenWait* wait) {
  if (wait) return "waits: " + wait_text(view, *wait);
  if (thread.state == 'R') return "runs";
  if (thread.state == 'T' || thread.state == 't') return "is stopped";
  if (thread.answer == Answer::kEnded) return "has ended";
  const std::string where = thread.kernel.empty() ? "" : " in " + thread.kernel;
  return (thread.state == 'D' ? "sleeps, not to be woken," : "sleeps") + where;
}

std::string harmless(const std::string& text) { return fit_columns(text, kMostColumns); }

std::string heading(const SeenProcess* process, pid_t pid) {
  std::string text = process && !process->name.empty() ? process->name : "-";
  text += fmt::format("  pid {}", pid);
  if (process && process->rank >= 0) text += fmt::format(", rank {}", process->rank);
  if (process && !process->label.empty()) text += ": " + process->label;
  return fit_columns(text, 2 * kMostColumns);
}

void add_calls(std::string& text, const StacksReport& report, pid_t pid, const ThreadStack& thread) {
  if (thread.answer != Answer::kGiven) {
    text += fmt::format("    no stack: {}\n", reason_of(thread.answer));
    return;
  }
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const auto call = report.calls.find({pid, thread.frames[i]});
    text +=
        fmt::format("    {:>2}  {}\n", i,
                    call == report.calls.end() ? fmt::format("0x{:x}", thread.frames[i]) : short_text(call->second));
  }
}

}  // namespace

std::string to_text(const StacksReport& report) {
  const SessionView& view = report.view;
  std::size_t threads = 0;
  for (const ProcessStacks& process : report.stacks) threads += process.threads.size();
  std::string text = fmt::format("session of process {}   {} thread{} of {} process{}, asked in {}\n", view.root,
                                 threads, threads == 1 ? "" : "s", report.stacks.size(),
                                 report.stacks.size() == 1 ? "" : "es", short_seconds(report.seconds));
  for (const std::string& line : report.stuck) text += line + "\n";
  for (const ProcessStacks& process : report.stacks) {
    const SeenProcess* seen = view.process(process.slot);
    text += fmt::format("\n{}\n", heading(seen, process.pid));
    std::vector<bool> told(process.threads.size());
    for (std::size_t i = 0; i < process.threads.size(); ++i) {
      if (told[i]) continue;
      const ThreadStack& thread = process.threads[i];
      const SeenWait* wait = wait_of(seen, thread.thread);
      std::vector<pid_t> same{thread.thread};
      for (std::size_t other = i + 1; !wait && other < process.threads.size(); ++other) {
        const ThreadStack& theirs = process.threads[other];
        if (theirs.frames != thread.frames || theirs.answer != thread.answer || theirs.name != thread.name ||
            theirs.state != thread.state || wait_of(seen, theirs.thread))
          continue;
        told[other] = true;
        same.push_back(theirs.thread);
      }
      text += fmt::format("  thread{} {} {}   {}\n", same.size() == 1 ? "" : "s", fmt::join(same, ", "),
                          harmless(thread.name), state_text(view, thread, wait));
      add_calls(text, report, process.pid, thread);
    }
  }
  return text;
}

std::string to_json(const StacksReport& report) {
  Json processes = Json::array();
  for (const ProcessStacks& process : report.stacks) {
    const SeenProcess* seen = report.view.process(process.slot);
    Json threads = Json::array();
    for (const ThreadStack& thread : process.threads) {
      Json frames = Json::array();
      for (const std::uint64_t address : thread.frames) {
        const auto call = report.calls.find({process.pid, address});
        const StackFrame frame = call == report.calls.end() ? StackFrame() : call->second;
        frames.push_back({{"address", address},
                          {"function", frame.function.empty() ? Json(nullptr) : Json(frame.function)},
                          {"file", frame.line == 0 ? Json(nullptr) : Json(frame.file)},
                          {"line", frame.line == 0 ? Json(nullptr) : Json(frame.line)},
                          {"image", frame.image.empty() ? Json(nullptr) : Json(frame.image)},
                          {"offset", frame.offset}});
      }
      const SeenWait* wait = wait_of(seen, thread.thread);
      threads.push_back({{"thread", thread.thread},
                         {"name", thread.name},
                         {"state", std::string(1, thread.state)},
                         {"kernel", thread.kernel.empty() ? Json(nullptr) : Json(thread.kernel)},
                         {"waits_for", wait ? Json(wait_text(report.view, *wait)) : Json(nullptr)},
                         {"block", wait ? Json(wait->block) : Json(nullptr)},
                         {"wait_seconds", wait ? Json(double(report.view.time - wait->since) * 1e-9) : Json(nullptr)},
                         {"missing", thread.answer == Answer::kGiven ? Json(nullptr) : Json(reason_of(thread.answer))},
                         {"frames", std::move(frames)}});
    }
    processes.push_back({{"pid", process.pid},
                         {"name", seen ? seen->name : ""},
                         {"rank", seen && seen->rank >= 0 ? Json(seen->rank) : Json(nullptr)},
                         {"label", seen ? seen->label : ""},
                         {"threads", std::move(threads)}});
  }
  const Json object = {
      {"schema", 1}, {"root", report.view.root}, {"seconds", report.seconds}, {"processes", std::move(processes)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shoal::command
