#include <shoal/internal/ipc/observe/process_usage.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/fd.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace shoal {
namespace {

std::string read_file(pid_t pid, const char* name) {
  Fd file = lift(Fd(::open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC)));
  std::string text(4096, '\0');
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? std::size_t(size) : 0);
  return text;
}

std::uint64_t bytes_after(const std::string& text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string::npos) return 0;
  return std::uint64_t(std::atoll(text.c_str() + at + key.size())) * 1024;
}

}  // namespace

MemoryShare read_memory_share(pid_t pid) {
  const std::string text = read_file(pid, "smaps_rollup");
  return {bytes_after(text, "\nPrivate_Clean:") + bytes_after(text, "\nPrivate_Dirty:"), bytes_after(text, "\nPss:")};
}

ProcessUsage read_usage(pid_t pid, std::uint64_t when, Pss pss) {
  ProcessUsage usage;
  const std::string text = read_file(pid, "stat");
  const auto name_end = text.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) return usage;
  std::istringstream fields(text.substr(name_end + 1));
  std::uint64_t skipped = 0, user = 0, system = 0, started = 0;
  long resident = 0;
  fields >> usage.state >> usage.parent;
  for (int field = 5; field <= 13; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field <= 19; ++field) fields >> skipped;
  fields >> usage.threads >> skipped >> started >> skipped >> resident;
  if (!fields || started > when) return ProcessUsage();
  usage.found = true;
  usage.cpu_ns = (user + system) * (1'000'000'000ull / std::uint64_t(std::max(1l, ::sysconf(_SC_CLK_TCK))));
  usage.resident_bytes = std::uint64_t(std::max(0l, resident)) * std::uint64_t(::sysconf(_SC_PAGESIZE));
  const MemoryShare share = pss == Pss::kRead ? read_memory_share(pid) : MemoryShare();
  usage.pss_bytes = share.pss_bytes;
  usage.private_bytes = share.pss_bytes != 0 ? share.private_bytes : bytes_after(read_file(pid, "status"), "RssAnon:");
  return usage;
}

std::string command_line_of(pid_t pid) {
  std::string text = read_file(pid, "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

}  // namespace shoal
