// Decides for the launchers of a run: who takes part, with which numbers, and when all ranks start again.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shoal::rendezvous {

struct CoordinatorSettings {
  int least = 1, most = 1;    // hosts
  int max_restarts = 0;       // after failures
  double join_timeout = 600;  // seconds to wait for `least` hosts
  double last_call = 30;      // seconds to wait for more than `least`, the first time
  double dead_after = 15;     // seconds without a sign of life
};

/// One of the launchers' companions, the one that has the store, has this object. Without it there is no run, so nobody
/// else has to be able to take over. Pure: it is told what members say and what time it is (seconds of any clock), and
/// its answers are fetched. One thread.
///
/// Members say "join RANKS WISHED_NODE PORT ADDRESS", "success ROUND", "failure ROUND TEXT", "leave TEXT". They are
/// told "round NUMBER NODE NODES FIRST_RANK WORLD_SIZE RESTARTS PORT ADDRESS", "restart TEXT", "finished", "failed
/// TEXT".
class Coordinator {
 public:
  /// `own`: the member that this coordinator dies with.
  Coordinator(const CoordinatorSettings& settings, std::string own, double now);

  void receive(const std::string& id, const std::string& message, double now);
  void note_alive(const std::string& id, double now);
  void tick(double now);

  using Answer = std::pair<std::string, std::string>;  // member, text
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }
  bool is_over() const { return over_; }
  std::vector<std::string> members() const;

 private:
  enum class State {
    kWaiting,     // for a round
    kRunning,     // in the current one
    kSucceeded,   // in the current one, all its ranks
    kRestarting,  // told to end its ranks and to join again
  };
  struct Member {
    State state = State::kWaiting;
    int order = 0;  // of its first joining
    int wish = -1;  // node rank
    int node = -1;  // in the last round
    int ranks = 1, port = 0;
    std::string address;
    double seen = 0;
  };

  void join(const std::string& id, const std::string& rest, double now);
  void remove(const std::string& id, const std::string& why, double now);
  void begin_restart(const std::string& reason, double now);
  void form_round();
  void end(const std::string& answer);
  int count(State state) const;

  const CoordinatorSettings settings_;
  const std::string own_;
  std::map<std::string, Member> members_;
  std::vector<Answer> answers_;
  int joined_ = 0, round_ = -1, restarts_ = 0;
  bool active_ = false, over_ = false;
  double waiting_since_, enough_since_ = -1;
};

}  // namespace shoal::rendezvous
