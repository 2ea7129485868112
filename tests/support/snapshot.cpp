#include "tests/support/snapshot.h"

#include <fmt/format.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shoal::test {
namespace {

namespace fs = std::filesystem;

std::map<int, std::string> read_descriptors() {
  std::map<int, std::string> result;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry, error);
    if (error) continue;
    const std::string text = target.string();
    // The descriptor of this very iteration.
    if (text.starts_with("/proc/") && text.ends_with("/fd")) continue;
    result[std::stoi(entry.path().filename())] = text;
  }
  return result;
}

std::map<std::string, std::size_t> read_mappings() {
  std::map<std::string, std::size_t> result;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    char permissions[5] = "";
    int path_at = 0;
    std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &begin, &end, permissions, &path_at);
    const std::string path = line.substr(path_at);
    const bool shared = permissions[3] == 's';
    const bool private_file = path.starts_with('/') && path.find(".so") == std::string::npos;
    // Bytes rather than mappings: a change of protection splits one in two. Libraries load at first use and stay.
    if (shared || private_file) result[path.empty() ? "anonymous shared memory" : path] += end - begin;
  }
  return result;
}

std::map<pid_t, std::string> read_children() {
  std::map<pid_t, std::string> result;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t pid = 0; children >> pid;) {
      std::ifstream stat(fmt::format("/proc/{}/stat", pid));
      std::stringstream text;
      text << stat.rdbuf();
      // pid (name) state ...; the name may hold anything, so the last parenthesis counts.
      const std::string line = text.str();
      const auto open = line.find('('), close = line.rfind(')');
      if (close == std::string::npos || close + 2 >= line.size()) continue;
      const bool zombie = line[close + 2] == 'Z';
      result[pid] = line.substr(open, close - open + 1) + (zombie ? ", dead but never waited for" : ", running");
    }
  }
  return result;
}

/// Every block in use: what it is, and who holds it.
std::string describe_blocks() {
  SessionCore& session = SessionCore::current();
  std::string text;
  session.heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    if (BlockHeader::kind(header.state.load()) != BlockHeader::kLive) return;
    text += fmt::format("\n  {} bytes of type {}, held by", header.size, unsigned(header.type.load()));
    session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
      const std::uint32_t word = hold.load();
      const ProcessTag tag = ProcessTag::from_word(word);
      if (word != 0)
        text += fmt::format(" {}{} (pid {}, {})", word == tag.word() ? "slot " : "a message of slot ", tag.slot(),
                            session.record(tag.slot()).pid.load(), session.is_alive(tag) ? "alive" : "dead");
      return true;
    });
  });
  return text;
}

/// Whether the CUDA driver may have opened or mapped this: its devices and files, and what it wakes its threads by.
bool may_be_the_drivers(const std::string& target) {
  for (const char* start :
       {"/dev/nvidia", "pipe:[", "anon_inode:[eventfd]", "/dev/zero", "/dev/shm/cuda.shm.", "anonymous shared memory"})
    if (target.starts_with(start)) return true;
  return target.find("nvidia") != std::string::npos || target.find("/.nv/") != std::string::npos;
}

/// What it opens once, when it is started.
bool comes_with_the_driver(const std::string& target) { return target.starts_with("socket:["); }

bool has_a_driver(const Snapshot& snapshot) {
  return std::ranges::any_of(snapshot.descriptors,
                             [](const auto& entry) { return entry.second.starts_with("/dev/nvidia"); });
}

/// What is neither the driver's nor may be.
Snapshot without_the_drivers(Snapshot snapshot, bool started_meanwhile) {
  std::erase_if(snapshot.descriptors, [&](const auto& entry) {
    return may_be_the_drivers(entry.second) || (started_meanwhile && comes_with_the_driver(entry.second));
  });
  std::erase_if(snapshot.mappings, [](const auto& entry) { return may_be_the_drivers(entry.first); });
  return snapshot;
}

std::vector<std::string> compare(const Snapshot& before, const Snapshot& after, const std::set<pid_t>& allowed) {
  std::vector<std::string> leaks;
  // A descriptor that was replaced (closed and opened anew) is none too many.
  if (after.descriptors.size() > before.descriptors.size()) {
    for (const auto& [number, target] : after.descriptors) {
      const auto old = before.descriptors.find(number);
      if (old == before.descriptors.end() || old->second != target) {
        leaks.push_back(fmt::format("descriptor {} -> {}", number, target));
      }
    }
  }
  for (const auto& [path, bytes] : after.mappings) {
    const auto old = before.mappings.find(path);
    const std::size_t had = old == before.mappings.end() ? 0 : old->second;
    if (bytes > had) leaks.push_back(fmt::format("mapping of {}: {} bytes more", path, bytes - had));
  }
  for (const auto& [pid, state] : after.children) {
    if (before.children.count(pid) == 0 && allowed.count(pid) == 0)
      leaks.push_back(fmt::format("child {} {}", pid, state));
  }
  if (after.heap_bytes > before.heap_bytes) {
    leaks.push_back(fmt::format("shared heap: {} bytes in use, {} before{}", after.heap_bytes, before.heap_bytes,
                                describe_blocks()));
  }
  return leaks;
}

}  // namespace

Snapshot take_snapshot() { return {read_descriptors(), read_mappings(), read_children(), heap_bytes_in_use()}; }

std::vector<std::string> find_leaks(const Snapshot& before, const Snapshot& after, const std::set<pid_t>& allowed) {
  if (!has_a_driver(after)) return compare(before, after, allowed);
  const bool started_meanwhile = !has_a_driver(before);
  return compare(without_the_drivers(before, started_meanwhile), without_the_drivers(after, started_meanwhile),
                 allowed);
}

}  // namespace shoal::test
