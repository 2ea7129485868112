// Ranks on hosts that a test simulates, started as a launcher would.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/network_hosts.h"

namespace shoal::test {

/// The name spaces of a test, or nothing, with a word why: then it is skipped.
#define REQUIRE_NETWORK_HOSTS()                                                               \
  do {                                                                                        \
    if (const std::string reason = ::shoal::test::NetworkHosts::why_not(); !reason.empty()) { \
      WARN("skipped: no hosts can be simulated here: " + reason);                             \
      return;                                                                                 \
    }                                                                                         \
  } while (false)

/// Programs of the ranks, tests/hosts/programs/rank. They are killed with this.
class HostRanks {
 public:
  using Variables = std::map<std::string, std::string>;

  /// ranks_of_hosts[h] ranks on host h, which do `what`. `variables` are set for all.
  HostRanks(const NetworkHosts& hosts, std::vector<int> ranks_of_hosts, const std::string& what,
            Variables variables = {});

  /// Further variables of one rank.
  void set(int rank, const std::string& name, const std::string& value) { own_[std::size_t(rank)][name] = value; }
  void start();
  /// Waits until that many ranks have printed READY.
  void wait_until_ready(int ranks);
  RunningProgram& rank(int number) { return *programs_[std::size_t(number)]; }
  pid_t pid(int number) const { return programs_[std::size_t(number)]->pid(); }
  /// All ranks' ends, by rank.
  std::vector<ProgramResult> finish();

 private:
  const NetworkHosts& hosts_;
  std::vector<int> ranks_of_hosts_;
  std::string what_;
  std::vector<Variables> own_;
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<RunningProgram>> programs_;
};

/// The rest of the line that begins so; empty if there is none.
std::string line_after(const std::string& output, const std::string& beginning);

}  // namespace shoal::test
