#include "tests/support/network_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

extern char** environ;

namespace shoal::test {
namespace {

/// Runs a command without its output. Returns its exit code.
int run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int number : {1, 2}) ::posix_spawn_file_actions_addopen(&actions, number, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return 127;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void must_run(const std::vector<std::string>& command) {
  if (const int code = run(command); code != 0)
    throw std::runtime_error(fmt::format("'{}' ended with {}", fmt::join(command, " "), code));
}

std::string unused_name() {
  static int made = 0;
  return fmt::format("shoal{}x{}", ::getpid(), made++);
}

}  // namespace

std::string NetworkHosts::why_not() {
  if (run({"ip", "-V"}) != 0) return "iproute2 is not installed";
  const std::string name = unused_name();
  if (run({"ip", "netns", "add", name}) != 0) return "this user, or this kernel, makes no network name spaces";
  const bool bridges = run({"ip", "-n", name, "link", "add", "hub", "type", "bridge"}) == 0 &&
                       run({"ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"}) == 0;
  run({"ip", "netns", "del", name});
  return bridges ? "" : "this kernel has no bridges or no veth pairs";
}

NetworkHosts::NetworkHosts(int count) : count_(count), name_(unused_name()) {
  try {
    must_run({"ip", "netns", "add", hub()});
    must_run({"ip", "-n", hub(), "link", "add", "hub", "type", "bridge"});
    must_run({"ip", "-n", hub(), "link", "set", "hub", "up"});
    for (int host = 0; host < count; ++host) {
      const std::string port = fmt::format("port{}", host);
      must_run({"ip", "netns", "add", space(host)});
      must_run({"ip", "-n", hub(), "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space(host)});
      must_run({"ip", "-n", hub(), "link", "set", port, "master", "hub", "up"});
      must_run({"ip", "-n", space(host), "addr", "add", address(host) + "/24", "dev", "eth0"});
      must_run({"ip", "-n", space(host), "link", "set", "eth0", "up"});
      must_run({"ip", "-n", space(host), "link", "set", "lo", "up"});
    }
  } catch (...) {
    remove();
    throw;
  }
}

NetworkHosts::~NetworkHosts() { remove(); }

void NetworkHosts::remove() const {
  for (int host = 0; host < count_; ++host) run({"ip", "netns", "del", space(host)});
  run({"ip", "netns", "del", hub()});
}

std::string NetworkHosts::address(int host) const { return fmt::format("10.77.0.{}", host + 1); }
std::string NetworkHosts::space(int host) const { return fmt::format("{}h{}", name_, host); }
std::string NetworkHosts::hub() const { return name_ + "hub"; }
std::vector<std::string> NetworkHosts::prefix(int host) const {
  return {"/usr/bin/env", "ip", "netns", "exec", space(host)};
}

void NetworkHosts::set_link(int host, bool up) const {
  must_run({"ip", "-n", hub(), "link", "set", fmt::format("port{}", host), up ? "up" : "down"});
}

void NetworkHosts::cut_silently(int host) const {
  must_run({"ip", "-n", hub(), "link", "set", fmt::format("port{}", host), "nomaster"});
}

void NetworkHosts::limit(int megabits) const {
  for (int host = 0; host < count_; ++host)
    must_run({"tc", "-n", space(host), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
              fmt::format("{}mbit", megabits), "burst", "256kb", "latency", "100ms"});
}

std::uint64_t NetworkHosts::bytes_sent(int host) const {
  // What the hub's port has received; its name space is entered by nobody but ip.
  const std::string file = fmt::format("/tmp/{}.bytes", name_);
  must_run({"sh", "-c",
            fmt::format("ip netns exec {} cat /sys/class/net/port{}/statistics/rx_bytes > {}", hub(), host, file)});
  std::uint64_t bytes = 0;
  std::ifstream(file) >> bytes;
  ::unlink(file.c_str());
  return bytes;
}

}  // namespace shoal::test
