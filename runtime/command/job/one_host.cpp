#include <shoal/internal/runtime/command/job/one_host.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <fstream>
#include <random>
#include <set>
#include <sstream>

namespace shoal::command {
namespace {

/// Local ports in the kernel's table of sockets: "0: 0100007F:1F90 ..."
void add_used_ports(const std::string& path, std::set<int>& used) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, address;
    fields >> number >> address;
    const auto colon = address.rfind(':');
    if (colon == std::string::npos || address.size() != colon + 5) continue;
    used.insert(std::stoi(address.substr(colon + 1), nullptr, 16));
  }
}

}  // namespace

int find_free_port(const std::string& root) {
  std::set<int> used;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) add_used_ports(root + table, used);
  // Below the ports that the kernel gives to outgoing connections.
  constexpr int kFirst = 20000, kCount = 12000;
  const int start = int(std::random_device()() % kCount);
  for (int i = 0; i < kCount; ++i)
    if (const int port = kFirst + (start + i) % kCount; !used.contains(port)) return port;
  throw Error(fmt::format("no TCP port from {} to {} is free: give --master-port", kFirst, kFirst + kCount - 1));
}

OneHost::OneHost(const RunOptions& options) : max_restarts_(options.max_restarts) {
  round_.number = -1;
  round_.world_size = options.ranks;
  round_.master_addr = options.master_addr.empty() ? "127.0.0.1" : options.master_addr;
  round_.master_port = options.master_port;
}

RendezvousEvent& OneHost::add(RendezvousEvent::Kind kind, const std::string& reason) {
  RendezvousEvent& event = events_.emplace_back();
  event.kind = kind;
  event.reason = reason;
  return event;
}

void OneHost::join() {
  ++round_.number;
  Round round = round_;
  if (round.master_port == 0) round.master_port = find_free_port();
  add(RendezvousEvent::Kind::kRound, "").round = round;
}

void OneHost::report_success() { add(RendezvousEvent::Kind::kFinished, ""); }

void OneHost::report_failure(const std::string& what) {
  if (round_.restart_count == max_restarts_) {
    add(RendezvousEvent::Kind::kFailed, what);
    return;
  }
  ++round_.restart_count;
  add(RendezvousEvent::Kind::kRestart, what);
}

std::optional<RendezvousEvent> OneHost::next_event() {
  if (events_.empty()) return std::nullopt;
  RendezvousEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace shoal::command
