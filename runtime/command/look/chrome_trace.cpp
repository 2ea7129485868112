#include <shoal/internal/runtime/command/look/chrome_trace.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/trace/buffer.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace shoal::command {
namespace {

const char* category(TraceKind kind) {
  switch (kind) {
    case TraceKind::kSpan:
      return "span";
    case TraceKind::kPut:
    case TraceKind::kGet:
      return "message";
    case TraceKind::kWait:
      return "wait";
    case TraceKind::kStart:
    case TraceKind::kRun:
      return "process";
  }
  return "unknown";
}

std::string text_of(const TraceRecord& record) {
  const std::string name(record.name, ::strnlen(record.name, sizeof record.name));
  const std::string& shown = name.empty() ? "(no name)" : name;
  switch (record.kind) {
    case TraceKind::kPut:
      return "put " + shown;
    case TraceKind::kGet:
      return "get " + shown;
    case TraceKind::kWait:
      return "wait: " + shown;
    case TraceKind::kStart:
      return "start " + shown;
    case TraceKind::kRun:
      return "run " + shown;
    case TraceKind::kSpan:
      break;
  }
  return shown;
}

/// With its quotes. What is not UTF-8 becomes U+FFFD, as in session_json.cpp.
std::string json_string(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string microseconds(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

/// What two events have in common that belong together: the first is the one that the arrow comes from.
struct Link {
  bool message;
  std::uint64_t subject, link;
  auto operator<=>(const Link&) const = default;
};

}  // namespace

const std::string& ChromeTrace::wait_name(std::uint64_t word) {
  const auto [found, is_new] = wait_names_.try_emplace(word);
  // Asked while the thing that is waited for is there still.
  if (is_new) found->second = name_of_wait_(word);
  return found->second;
}

void ChromeTrace::note_thread(pid_t pid, std::uint32_t thread) {
  const auto [found, is_new] = thread_names_.try_emplace({pid, thread});
  // Asked while it is there still.
  if (is_new) found->second = name_of_thread_(pid, thread);
}

void ChromeTrace::add(const TracedProcess& process, const TraceRecord& record) {
  if (events_.size() >= kMostEvents) {
    ++dropped_;
    return;
  }
  if (record.kind > TraceKind::kRun || record.end < record.start) return;  // nonsense
  events_.push_back({process.pid, record});
  note_thread(process.pid, record.thread);
  if (record.kind == TraceKind::kWait) {
    TraceRecord& own = events_.back().record;
    std::memset(own.name, 0, sizeof own.name);
    wait_name(record.subject).copy(own.name, sizeof own.name - 1);
  }
}

void ChromeTrace::add_open_wait(pid_t pid, std::uint32_t thread, const std::string& what, std::uint64_t since,
                                std::uint64_t now) {
  TraceRecord record{since, now, 0, 0, 0, TraceKind::kWait, thread, {}};
  what.copy(record.name, sizeof record.name - 1);
  if (now < since) return;
  events_.push_back({pid, record});
  note_thread(pid, thread);
}

bool ChromeTrace::write(std::FILE* to, const std::vector<TracedProcess>& processes) const {
  std::vector<const Event*> sorted;
  sorted.reserve(events_.size());
  for (const Event& event : events_) sorted.push_back(&event);
  // Of those that begin at once, the one that ends last holds the others.
  std::ranges::sort(sorted, [](const Event* a, const Event* b) {
    return std::pair(a->record.start, ~a->record.end) < std::pair(b->record.start, ~b->record.end);
  });
  std::map<Link, const Event*> ends;  // where arrows go to
  for (const Event* event : sorted)
    if (event->record.kind == TraceKind::kGet)
      ends[{true, event->record.subject, event->record.link}] = event;
    else if (event->record.kind == TraceKind::kRun)
      ends[{false, 0, event->record.link}] = event;
  const char* before = "\n";
  // An event is written at once, and only its names go through the library: a million events take 1.8 s, as objects of
  // the library 6 s.
  auto line = [&](const std::string& text) {
    std::fputs(before, to);
    std::fwrite(text.data(), 1, text.size(), to);
    before = ",\n";
  };
  std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", to);
  std::uint64_t lost = 0;
  std::map<pid_t, std::string> names;
  for (const TracedProcess& process : processes) {
    names[process.pid] = process.name;
    lost += process.lost;
  }
  for (const auto& [pid, name] : names)
    line(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid, pid,
                     json_string(name)));
  for (const auto& [thread, name] : thread_names_)
    if (!name.empty())
      line(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", thread.first,
                       thread.second, json_string(name)));
  std::uint64_t arrows = 0;
  for (const Event* event : sorted) {
    const TraceRecord& record = event->record;
    const char* key = record.kind == TraceKind::kSpan ? "value" : "bytes";
    const bool has_value = record.value != 0 || record.kind == TraceKind::kSpan;
    line(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                     json_string(text_of(record)), category(record.kind), event->pid, record.thread,
                     microseconds(record.start), microseconds(record.end - record.start),
                     has_value ? fmt::format("\"{}\":{}", key, record.value) : ""));
    const bool is_put = record.kind == TraceKind::kPut;
    if (!is_put && record.kind != TraceKind::kStart) continue;
    const auto end = ends.find(is_put ? Link{true, record.subject, record.link} : Link{false, 0, record.link});
    if (end == ends.end() || end->second->record.end < record.start) continue;
    const TraceRecord& other = end->second->record;
    // From within the one to within the other; a get's moment is its end.
    const std::uint64_t from = record.start, arrives = is_put ? other.end : std::max(other.start, from);
    ++arrows;
    line(fmt::format(R"({{"ph":"s","name":"{0}","cat":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4}}})",
                     category(record.kind), arrows, event->pid, record.thread, microseconds(from)));
    line(fmt::format(R"({{"ph":"f","bp":"e","name":"{0}","cat":"{0}","id":{1},"pid":{2},"tid":{3},"ts":{4}}})",
                     category(record.kind), arrows, end->second->pid, other.thread, microseconds(arrives)));
  }
  std::fputs(fmt::format("\n],\"otherData\":{{\"clock\":\"CLOCK_MONOTONIC\",\"lost_events\":{}}}}}\n", lost + dropped_)
                 .c_str(),
             to);
  return std::fflush(to) == 0 && std::ferror(to) == 0;
}

}  // namespace shoal::command
