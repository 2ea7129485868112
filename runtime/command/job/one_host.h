// The rendezvous of a run with one launcher: nobody to agree with, no port.
#pragma once

#include <shoal/internal/runtime/command/job/rendezvous.h>
#include <shoal/internal/runtime/command/job/run_options.h>

#include <deque>

namespace shoal::command {

/// Every call's answer is there at once.
class OneHost : public Rendezvous {
 public:
  explicit OneHost(const RunOptions& options);
  void join() override;
  void report_success() override;
  void report_failure(const std::string& what) override;
  void leave(const std::string&) override {}
  std::optional<RendezvousEvent> next_event() override;
  int descriptor() const override { return -1; }

 private:
  RendezvousEvent& add(RendezvousEvent::Kind kind, const std::string& reason);

  Round round_;
  int max_restarts_;
  std::deque<RendezvousEvent> events_;
};

/// A TCP port that nobody on this machine listens at or uses, as /proc/net shows: found without opening any. It is for
/// programs that want to make a rendezvous of their own by MASTER_ADDR and MASTER_PORT.
int find_free_port(const std::string& root = "");

}  // namespace shoal::command
