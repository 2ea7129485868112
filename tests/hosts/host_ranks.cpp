#include "tests/hosts/host_ranks.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/guard.h"

namespace shoal::test {

HostRanks::HostRanks(const NetworkHosts& hosts, std::vector<int> ranks_of_hosts, const std::string& what,
                     Variables variables)
    : hosts_(hosts), ranks_of_hosts_(std::move(ranks_of_hosts)), what_(what) {
  int world = 0;
  std::string text;
  for (const int ranks : ranks_of_hosts_) {
    world += ranks;
    text += std::to_string(ranks);
  }
  variables.try_emplace("MASTER_ADDR", hosts_.address(0));
  variables.try_emplace("MASTER_PORT", "29511");
  variables["WORLD_SIZE"] = std::to_string(world);
  variables["GROUP_WORLD_SIZE"] = std::to_string(ranks_of_hosts_.size());
  variables["RANKS_OF_HOSTS"] = text;
  // One run_id for each test, so that a session of another one is not found; one folder of sockets for all hosts.
  variables["TORCHELASTIC_RUN_ID"] = folder_.path();
  variables["XDG_RUNTIME_DIR"] = folder_.path();
  variables["OMP_NUM_THREADS"] = "1";
  int rank = 0;
  for (std::size_t host = 0; host < ranks_of_hosts_.size(); ++host)
    for (int local = 0; local < ranks_of_hosts_[host]; ++local) {
      Variables own = variables;
      own["RANK"] = std::to_string(rank++);
      own["LOCAL_RANK"] = std::to_string(local);
      own["LOCAL_WORLD_SIZE"] = std::to_string(ranks_of_hosts_[host]);
      own["GROUP_RANK"] = std::to_string(host);
      own_.push_back(std::move(own));
    }
}

void HostRanks::start() {
  int rank = 0;
  for (std::size_t host = 0; host < ranks_of_hosts_.size(); ++host)
    for (int local = 0; local < ranks_of_hosts_[host]; ++local, ++rank) {
      std::vector<std::string> command = hosts_.prefix(int(host));
      command.emplace_back("env");
      for (const auto& [name, value] : own_[std::size_t(rank)]) command.push_back(fmt::format("{}={}", name, value));
      // Ready ranks say so in a file, too: what they print is read at their end.
      command.push_back("READY_FILE=" + folder_.file("ready"));
      command.insert(command.end(), {SHOAL_HOSTS_RANK, what_});
      programs_.push_back(std::make_unique<RunningProgram>(command));
    }
}

void HostRanks::wait_until_ready(int ranks) { wait_for_lines(folder_.file("ready"), std::size_t(ranks)); }

std::vector<ProgramResult> HostRanks::finish() {
  std::vector<ProgramResult> results;
  for (auto& program : programs_) results.push_back(program->finish());
  return results;
}

std::string line_after(const std::string& output, const std::string& beginning) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(beginning)) return line.substr(beginning.size());
  return "";
}

}  // namespace shoal::test
