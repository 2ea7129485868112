#include <shoal/internal/runtime/command/job/many_hosts.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/command/companion/companion.h>
#include <shoal/internal/runtime/command/job/one_host.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/runtime/exit_status.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace shoal::command {
namespace {

bool debugs() {
  const char* level = std::getenv("SHOAL_LOG");
  return level && std::string(level) == "debug";
}

}  // namespace

std::string endpoint_of(const RunOptions& options) {
  std::string endpoint = options.endpoint;
  if (endpoint.empty() && !options.master_addr.empty())
    endpoint = fmt::format("{}:{}", options.master_addr, options.master_port ? options.master_port : 29500);
  if (endpoint.empty())
    throw std::invalid_argument("--nnodes says several hosts: add --rdzv-endpoint HOST:PORT, the same on all of them");
  const auto colon = endpoint.rfind(':');
  if (colon == std::string::npos || endpoint.ends_with(']')) return endpoint + ":29400";
  if (!endpoint.starts_with('[') && endpoint.find(':') != colon)
    throw std::invalid_argument(
        fmt::format("--rdzv-endpoint {}: an address of IPv6 stands in brackets, [ADDRESS]:PORT", endpoint));
  int port = 0;
  const char* end = endpoint.data() + endpoint.size();
  const auto [stopped, error] = std::from_chars(endpoint.data() + colon + 1, end, port);
  if (error != std::errc() || stopped != end || port < 1 || port > 65535 || colon == 0)
    throw std::invalid_argument(
        fmt::format("--rdzv-endpoint {}: give HOST:PORT, with a port from 1 to 65535", endpoint));
  return endpoint;
}

RendezvousEvent parse_event(const std::string& line) {
  using Kind = RendezvousEvent::Kind;
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  RendezvousEvent event;
  if (kind == "round") {
    Round& round = event.round;
    words >> round.number >> round.node_rank >> round.node_count >> round.first_rank >> round.world_size >>
        round.restart_count >> round.master_port >> round.master_addr;
    if (!words) throw Error(fmt::format("shoal-rendezvous said '{}', which is no round", line));
    return event;
  }
  std::getline(words >> std::ws, event.reason);
  if (kind == "restart")
    event.kind = Kind::kRestart;
  else if (kind == "finished")
    event.kind = Kind::kFinished;
  else if (kind == "failed")
    event.kind = Kind::kFailed;
  else if (kind == "lost")
    event.kind = Kind::kLost;
  else
    throw Error(fmt::format("shoal-rendezvous said '{}', which means nothing", line));
  return event;
}

ManyHosts::ManyHosts(const RunOptions& options)
    : master_addr_(options.endpoint.empty() ? "" : options.master_addr),
      master_port_(options.endpoint.empty() ? 0 : options.master_port) {
  std::vector<std::string> arguments{"shoal-rendezvous", "endpoint=" + endpoint_of(options)};
  for (const auto& [name, value] : options.rendezvous_conf) arguments.push_back(fmt::format("{}={}", name, value));
  const std::string path = find_companion("shoal-rendezvous", "a run of several hosts");
  arguments.insert(arguments.end(),
                   {"id=" + options.run_id, fmt::format("least={}", options.nodes.least),
                    fmt::format("most={}", options.nodes.most), fmt::format("max_restarts={}", options.max_restarts),
                    fmt::format("node_rank={}", options.node_rank), fmt::format("ranks={}", options.ranks),
                    fmt::format("interval={}", options.monitor_interval), "address=" + options.local_addr});
  PipeEnds down = make_pipe(), up = make_pipe();
  orders_ = std::move(down.writing);
  answers_ = std::move(up.reading);
  ::fcntl(answers_.get(), F_SETFL, O_NONBLOCK);
  // libtorch's warnings about sockets are for those that look for a fault. What it cannot write is lost: nobody may be
  // reading at that moment, and it must not wait.
  PipeEnds error = make_pipe();
  ::fcntl(error.reading.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(error.writing.get(), F_SETFL, O_NONBLOCK);
  complaints_ = std::move(error.reading);
  companion_ = exec_program({.path = path,
                             .arguments = arguments,
                             .environment = environment_with({{"OMP_NUM_THREADS", "1"}}),
                             .descriptors = {},
                             .standard = {down.reading.get(), up.writing.get(), debugs() ? 2 : error.writing.get()},
                             .cpus = {},
                             .own_group = true},
                            path, "is it of this machine?");
}

ManyHosts::~ManyHosts() {
  tell("bye");
  orders_.reset();
  const int ended = companion_.process.get();
  if (!wait_readable({&ended, 1}, Deadline::after(std::chrono::seconds(15)))) send_signal(companion_.process, SIGKILL);
  reap(companion_.process);
}

void ManyHosts::tell(const std::string& line) {
  std::string text = line;
  std::ranges::replace(text, '\n', ' ');
  log_debug("to the companion: {}", text);
  text += '\n';
  // Shorter than a pipe holds; if the companion is gone, its answers end and that is told.
  [[maybe_unused]] auto written = ::write(orders_.get(), text.data(), text.size());
}

void ManyHosts::join() { tell(fmt::format("join {}", master_port_ ? master_port_ : find_free_port())); }
void ManyHosts::report_success() { tell(fmt::format("success {}", round_)); }
void ManyHosts::report_failure(const std::string& what) {
  tell(fmt::format("failure {} {}", round_, what.substr(0, 1000)));
}
void ManyHosts::leave(const std::string& why) { tell(fmt::format("leave {}", why.substr(0, 1000))); }

void ManyHosts::read_complaints() {
  char bytes[4096];
  for (ssize_t got; (got = ::read(complaints_.get(), bytes, sizeof bytes)) > 0;)
    last_words_.add(bytes, std::size_t(got));
}

std::optional<RendezvousEvent> ManyHosts::next_event() {
  read_complaints();
  char bytes[4096];
  ssize_t got = 1;
  while (input_.find('\n') == std::string::npos && (got = ::read(answers_.get(), bytes, sizeof bytes)) > 0)
    input_.append(bytes, std::size_t(got));
  if (const auto end = input_.find('\n'); end != std::string::npos) {
    log_debug("the companion: {}", input_.substr(0, end));
    RendezvousEvent event = parse_event(input_.substr(0, end));
    input_.erase(0, end + 1);
    if (event.kind == RendezvousEvent::Kind::kRound) {
      round_ = event.round.number;
      if (!master_addr_.empty()) event.round.master_addr = master_addr_;
    }
    lost_ = lost_ || event.kind == RendezvousEvent::Kind::kLost;
    return event;
  }
  if (got != 0 || lost_) return std::nullopt;
  lost_ = true;
  RendezvousEvent event;
  event.kind = RendezvousEvent::Kind::kLost;
  // Its answers have ended; what it said last came before that.
  const int ended = companion_.process.get();
  wait_readable({&ended, 1}, Deadline::after(std::chrono::seconds(1)));
  read_complaints();
  event.reason = "the program shoal-rendezvous has died";
  std::string words = last_words_.text();
  while (words.ends_with('\n')) words.pop_back();
  if (!words.empty()) event.reason += ": " + words;
  return event;
}

}  // namespace shoal::command
