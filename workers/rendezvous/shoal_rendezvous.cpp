// shoal-rendezvous: what `shoal run` starts beside itself when a run has several hosts, since itself it knows no
// libtorch. It speaks with the launcher by lines. It is told, on its standard input: "join PORT", "success ROUND",
// "failure ROUND TEXT", "leave TEXT", and "bye" before the end. It tells, on its standard output, what Coordinator
// answers, and "lost TEXT" when the rendezvous cannot be reached, or not any more.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <shoal/internal/workers/rendezvous/coordinator.h>
#include <shoal/internal/workers/rendezvous/mailboxes.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace shoal::rendezvous {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void tell(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] auto written = ::write(1, text.data(), text.size());
}

/// "name=value" arguments.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const auto equals = argument.find('=');
      values_[argument.substr(0, equals)] = equals == std::string::npos ? "" : argument.substr(equals + 1);
    }
  }
  std::string text(const char* name, const std::string& otherwise = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  double number(const char* name, double otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::stod(value);
  }
  int whole(const char* name, int otherwise) const { return int(number(name, otherwise)); }

 private:
  std::map<std::string, std::string> values_;
};

/// Whether a name is this machine's: of its loopback, or of one of its interfaces.
bool is_here(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(interfaces, ::freeifaddrs);
  for (const addrinfo* address = found; address; address = address->ai_next)
    for (const ifaddrs* each = interfaces; each; each = each->ifa_next) {
      if (!each->ifa_addr || each->ifa_addr->sa_family != address->ai_family) continue;
      if (address->ai_family == AF_INET) {
        const auto* wanted = reinterpret_cast<const sockaddr_in*>(address->ai_addr);
        const auto* own = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
        if (wanted->sin_addr.s_addr == own->sin_addr.s_addr || ntohl(wanted->sin_addr.s_addr) >> 24 == 127) return true;
      } else if (address->ai_family == AF_INET6) {
        const auto* wanted = reinterpret_cast<const sockaddr_in6*>(address->ai_addr);
        const auto* own = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
        if (std::memcmp(&wanted->sin6_addr, &own->sin6_addr, sizeof wanted->sin6_addr) == 0) return true;
      }
    }
  return false;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// This launcher's member of the run, and if the store is here the coordinator of all.
class Companion {
 public:
  explicit Companion(const Arguments& arguments)
      : arguments_(arguments),
        run_id_(arguments.text("id", "none")),
        me_(fmt::format("{:08x}{:08x}", std::random_device()(), std::random_device()())) {}

  void connect() {
    const std::string endpoint = arguments_.text("endpoint");
    const auto colon = endpoint.rfind(':');
    host_ = endpoint.substr(0, colon);
    if (host_.starts_with('[') && host_.ends_with(']')) host_ = host_.substr(1, host_.size() - 2);  // IPv6
    c10d::TCPStoreOptions options;
    options.port = std::uint16_t(std::stoi(endpoint.substr(colon + 1)));
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(std::int64_t(1000 * arguments_.number("join_timeout", 600)));
    if (is_here(host_)) {
      try {
        c10d::TCPStoreOptions server = options;
        server.isServer = true;
        auto store = c10::make_intrusive<c10d::TCPStore>(host_, server);
        boxes_ = std::make_unique<Mailboxes>(store, run_id_);
        const double keep_alive = arguments_.number("keep_alive_interval", 5);
        coordinator_ = std::make_unique<Coordinator>(
            CoordinatorSettings{.least = arguments_.whole("least", 1),
                                .most = arguments_.whole("most", 1),
                                .max_restarts = arguments_.whole("max_restarts", 0),
                                .join_timeout = arguments_.number("join_timeout", 600),
                                .last_call = arguments_.number("last_call_timeout", 30),
                                .dead_after = keep_alive * arguments_.number("keep_alive_max_attempt", 3)},
            me_, now());
        boxes_->open(run_id_);
        return;
      } catch (const std::exception&) {
        // The port is taken: by another launcher of this run on this machine, most likely.
      }
    }
    auto store = c10::make_intrusive<c10d::TCPStore>(host_, options);
    boxes_ = std::make_unique<Mailboxes>(store, run_id_);
    boxes_->check_run(run_id_);
  }

  /// Until "bye", or the launcher's death.
  void work() {
    const int interval = std::max(1, int(1000 * arguments_.number("interval", 0.1)));
    const double keep_alive = arguments_.number("keep_alive_interval", 5);
    double told_alive = 0;
    while (!ends_) {
      pollfd input{0, POLLIN, 0};
      if (::poll(&input, 1, interval) > 0) read_input();
      if (now() - told_alive >= keep_alive / 2) {
        boxes_->say_alive(me_);
        told_alive = now();
      }
      coordinate();
      while (auto answer = boxes_->next_answer(me_)) tell(*answer);
    }
    // Others have yet to fetch what they were told, or to hear of this end.
    const double until = now() + (orderly_ ? 10 : 1);
    while (coordinator_ && now() < until) {
      coordinate();
      (void)boxes_->next_answer(me_);
      if (coordinator_->is_over() && !boxes_->has_unread()) break;
      ::poll(nullptr, 0, 10);
    }
  }

 private:
  void read_input() {
    char bytes[4096];
    const ssize_t got = ::read(0, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      // The launcher is dead: whatever the store does, this process is gone soon.
      ::alarm(2);
      boxes_->post(me_, "leave its launcher has died");
      ends_ = true;
      return;
    }
    input_.append(bytes, std::size_t(got));
    for (std::size_t end; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1)) {
      const std::string line = input_.substr(0, end);
      if (line == "bye") {
        orderly_ = ends_ = true;
      } else if (line.starts_with("join ")) {
        boxes_->post(me_, fmt::format("join {} {} {} {}", arguments_.whole("ranks", 1),
                                      arguments_.whole("node_rank", -1), line.substr(5), address()));
      } else {
        boxes_->post(me_, line);
      }
    }
  }

  /// Of this host, as the ranks of others reach it.
  std::string address() const {
    std::string given = arguments_.text("address");
    if (!given.empty()) return given;
    // All launchers have reached this host by that name, or they are all on one machine.
    const bool loopback = host_ == "localhost" || host_.starts_with("127.") || host_ == "::1";
    return coordinator_ || loopback ? host_ : host_name();
  }

  void coordinate() {
    if (!coordinator_) return;
    while (auto post = boxes_->next_post()) coordinator_->receive(post->first, post->second, now());
    for (const std::string& member : coordinator_->members())
      if (boxes_->was_alive(member)) coordinator_->note_alive(member, now());
    coordinator_->tick(now());
    for (const auto& [member, text] : coordinator_->take_answers()) boxes_->answer(member, text);
  }

  const Arguments& arguments_;
  const std::string run_id_, me_;
  std::string host_, input_;
  std::unique_ptr<Mailboxes> boxes_;
  std::unique_ptr<Coordinator> coordinator_;
  bool ends_ = false, orderly_ = false;
};

/// The first line of what an exception says, without libtorch's stack.
std::string first_line(const std::exception& error) {
  const std::string text = shoal::describe(error);
  return text.substr(0, text.find('\n'));
}

int run(int argc, char** argv) {
  const Arguments arguments(argc, argv);
  Companion companion(arguments);
  const std::string endpoint = arguments.text("endpoint");
  try {
    companion.connect();
  } catch (const shoal::Error& error) {
    tell(fmt::format("lost {}", error.what()));
    return 1;
  } catch (const std::exception& error) {
    tell(fmt::format(
        "lost the rendezvous at {} cannot be reached within {} s: is a launcher running on that host, and is the "
        "port open? ({})",
        endpoint, arguments.number("join_timeout", 600), first_line(error)));
    return 1;
  }
  // From here on the launcher's death is to be told to the others before this process ends.
  ::prctl(PR_SET_PDEATHSIG, 0);
  try {
    companion.work();
  } catch (const std::exception& error) {
    tell(fmt::format("lost the rendezvous at {} is gone: the launcher on that host has ended or died ({})", endpoint,
                     first_line(error)));
    return 1;
  }
  std::fflush(nullptr);
  return 0;
}

}  // namespace
}  // namespace shoal::rendezvous

int main(int argc, char** argv) {
  // Ctrl-C and the like are the launcher's to answer.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  const int code = shoal::rendezvous::run(argc, argv);
  ::_exit(code);  // libtorch's static destructors take 0.1 s
}
