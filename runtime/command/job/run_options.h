// What `shoal run` was asked for.
#pragma once

#include <shoal/internal/runtime/cpu/binding.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shoal::command {

/// How many hosts take part: fewer than `least` do not begin, more than `most` wait.
struct NodeRange {
  int least = 1, most = 1;
};

/// Which of a rank's two output streams, as torchrun numbers them.
struct Streams {
  bool output = false, error = false;
  bool any() const { return output || error; }
};

/// "0" to "3" for all ranks of this host, or "0:1,2:3" by local rank (none for the others).
class StreamChoice {
 public:
  StreamChoice() = default;
  /// Throws std::invalid_argument.
  explicit StreamChoice(const std::string& text);
  Streams of(int local_rank) const;

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

/// Everything checked: what RunSettings mean on this machine.
struct RunOptions {
  int ranks = 1;  // on this host
  NodeRange nodes = {};
  int node_rank = -1;  // wished for; -1: any
  std::string endpoint = {}, run_id = {};
  std::map<std::string, std::string> rendezvous_conf = {};
  std::string local_addr = {}, master_addr = {};
  int master_port = 0;
  bool standalone = false;
  int max_restarts = 0;
  std::vector<int> signals = {};  // that end the run in order
  double monitor_interval = 0.1, shutdown_timeout = 30;
  std::string role = "default";
  std::string log_dir = {};
  StreamChoice redirects = {}, tee = {};
  std::vector<int> shown = {};  // local ranks whose output comes to the console; empty: all
  Binding binding = Binding::none;
  std::vector<std::string> program = {};

  bool is_one_host() const { return standalone || nodes.most == 1; }
};

/// "4" or "1:4". These throw std::invalid_argument that says what the text must be.
NodeRange parse_nodes(const std::string& text);
/// A number, "cpu" (those that this process may use), "gpu" (NVIDIA's on this machine), or "auto": gpu if there are
/// some, else cpu.
int parse_ranks(const std::string& text);
/// GPUs of this machine, as far as device files and CUDA_VISIBLE_DEVICES tell.
int count_gpus(const std::string& root = "", const char* visible = nullptr);
/// "SIGTERM" or "USR1": the number of a signal that a process can handle.
int parse_signal(const std::string& text);

}  // namespace shoal::command
