// The rendezvous of a run with several launchers.
#pragma once

#include <shoal/internal/runtime/command/job/rendezvous.h>
#include <shoal/internal/runtime/command/job/run_options.h>
#include <shoal/internal/runtime/command/output/output_relay.h>
#include <shoal/internal/runtime/exec/exec_program.h>

namespace shoal::command {

/// Done by another program, shoal-rendezvous, which has libtorch's TCPStore; this is its launcher's end of the two
/// pipes between them. It dies with the launcher, having told the others. When it dies itself the run is lost.
class ManyHosts : public Rendezvous {
 public:
  /// Throws std::invalid_argument if the options lack something, Error if that program is not installed.
  explicit ManyHosts(const RunOptions& options);
  /// Waits until the others have heard of the end, if they have to hear it from here; 15 seconds at most.
  ~ManyHosts() override;
  void join() override;
  void report_success() override;
  void report_failure(const std::string& what) override;
  void leave(const std::string& why) override;
  std::optional<RendezvousEvent> next_event() override;
  int descriptor() const override { return lost_ ? -1 : answers_.get(); }

 private:
  void tell(const std::string& line);
  /// Takes what the companion has written to its standard error, which is kept for the case that it dies.
  void read_complaints();

  const std::string master_addr_;
  const int master_port_;
  int round_ = -1;
  Fd orders_, answers_, complaints_;
  OutputTail last_words_;
  StartedProcess companion_;
  std::string input_;
  bool lost_ = false;
};

/// One line of the companion's. Throws Error for what is none.
RendezvousEvent parse_event(const std::string& line);

/// Where the launchers meet: --rdzv-endpoint, or --master-addr and --master-port. Throws std::invalid_argument.
std::string endpoint_of(const RunOptions& options);

}  // namespace shoal::command
