// How the launchers of a run agree on who takes part.
#pragma once

#include <optional>
#include <string>

namespace shoal::command {

/// One start of all ranks, as all launchers have agreed on it.
struct Round {
  int number = 0;  // grows by one with every start
  int node_rank = 0, node_count = 1;
  int first_rank = 0;  // of this host's ranks
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;  // starts that were due to a failure; others are due to hosts that came or went
};

struct RendezvousEvent {
  enum class Kind {
    kRound,     // start the ranks
    kRestart,   // end the ranks and join() again: `reason`
    kFinished,  // all ranks of all hosts have ended well
    kFailed,    // the run is over: `reason`. A rank failed, here or elsewhere, and no restart is left, or too few are
                // there
    kLost,      // the run is over: there is no rendezvous, or none any more: `reason`
  };
  Kind kind = Kind::kRound;
  Round round;
  std::string reason;
};

/// One launcher's view. Used by its one thread. What it hears of goes to all launchers of the run; what comes of it is
/// in next_event(). When this launcher dies, the others get to know it without its help.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// Takes part in the next round.
  virtual void join() = 0;
  /// All ranks of this host have ended well. When all have everywhere, kFinished comes.
  virtual void report_success() = 0;
  /// A rank of this host has failed: `what` is one line about it. kRestart or kFailed comes.
  virtual void report_failure(const std::string& what) = 0;
  /// This launcher goes, and tells why.
  virtual void leave(const std::string& why) = 0;

  /// What has happened, in order; never waits.
  virtual std::optional<RendezvousEvent> next_event() = 0;
  /// To poll: readable when there may be an event that is not there yet. -1: all come from calls.
  virtual int descriptor() const = 0;
};

}  // namespace shoal::command
