// Machines that a test simulates by network name spaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::test {

/// Some hosts with an address each, connected by a bridge: name spaces with a veth pair. They have the machine's processes
/// and files in common, and neither connections nor loopback. Gone with their owner's scope; processes in them live on
/// until they are killed. One thread; needs iproute2 and the right to make name spaces (root).
class NetworkHosts {
 public:
  /// Why there can be none here; empty if there can.
  static std::string why_not();

  explicit NetworkHosts(int count);
  NetworkHosts(const NetworkHosts&) = delete;
  ~NetworkHosts();

  std::string address(int host) const;
  /// What a command begins with to run there.
  std::vector<std::string> prefix(int host) const;
  /// Cuts the host off from the others, or connects it again. The host itself sees no carrier.
  void set_link(int host, bool up) const;
  /// Cuts it off in the middle of the net, which the host itself does not see.
  void cut_silently(int host) const;
  /// Limits what each host can send, in Mbit/s.
  void limit(int megabits) const;
  /// Bytes that the host has sent so far.
  std::uint64_t bytes_sent(int host) const;

 private:
  std::string space(int host) const;
  std::string hub() const;
  void remove() const;

  int count_;
  std::string name_;
};

}  // namespace shoal::test
