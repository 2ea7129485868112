// Peer: a Redis server of its own on a Unix socket, by a client of a few lines. Without redis-server its rows are missing.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::duration<double> kDuration{0.7};

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

/// A reply: a text or a number as text, or several.
struct Reply {
  std::string text;
  std::vector<Reply> parts;
};

/// One connection, one thread. Commands and replies as the protocol RESP2 has them.
class Client {
 public:
  explicit Client(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (socket_ < 0) fail("socket");
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      const int error = errno;
      ::close(socket_);
      errno = error;
      fail("connect");
    }
  }
  Client(const Client&) = delete;
  ~Client() { ::close(socket_); }

  Reply ask(std::initializer_list<std::string_view> words) {
    request_ = "*" + std::to_string(words.size()) + "\r\n";
    for (const std::string_view word : words) {
      request_ += "$" + std::to_string(word.size()) + "\r\n";
      request_.append(word) += "\r\n";
    }
    for (std::string_view left = request_; !left.empty();) {
      const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) fail("send");
      left.remove_prefix(std::size_t(std::max<ssize_t>(sent, 0)));
    }
    return reply();
  }

 private:
  // NOLINTNEXTLINE(misc-no-recursion): as deep as what was asked for, which is one level.
  Reply reply() {
    const std::string head = line();
    const char kind = head.empty() ? '\0' : head[0];
    if (kind == '+' || kind == ':') return {head.substr(1), {}};
    if (kind == '-') throw std::runtime_error("redis: " + head.substr(1));
    if (kind != '$' && kind != '*') throw std::runtime_error("redis: a reply of another protocol");
    long count = 0;
    std::from_chars(head.data() + 1, head.data() + head.size(), count);
    Reply result;
    if (kind == '$' && count >= 0) result.text = bytes(std::size_t(count));
    for (; kind == '*' && count > 0; --count) result.parts.push_back(reply());
    return result;
  }
  std::string line() {
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n", begin_)) == std::string::npos) receive();
    std::string text = buffer_.substr(begin_, end - begin_);
    begin_ = end + 2;
    return text;
  }
  std::string bytes(std::size_t count) {
    while (buffer_.size() - begin_ < count + 2) receive();
    std::string text = buffer_.substr(begin_, count);
    begin_ += count + 2;
    return text;
  }
  void receive() {
    if (begin_ == buffer_.size()) buffer_.clear(), begin_ = 0;
    const std::size_t had = buffer_.size();
    buffer_.resize(had + (std::size_t(1) << 17));
    const ssize_t came = ::recv(socket_, buffer_.data() + had, buffer_.size() - had, 0);
    buffer_.resize(had + std::size_t(std::max<ssize_t>(came, 0)));
    if (came == 0) throw std::runtime_error("redis: the server is gone");
    if (came < 0 && errno != EINTR) fail("recv");
  }

  int socket_;
  std::string request_, buffer_;
  std::size_t begin_ = 0;
};

/// A server with nothing but its memory, as long as the object lives.
class Server {
 public:
  Server() : folder_(std::filesystem::temp_directory_path() / ("shoal-redis-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    process_ = ::fork();
    if (process_ < 0) fail("fork");
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path().c_str(), "--save", "",
               "--appendonly", "no", "--logfile", (folder_ / "log").c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
  }
  Server(const Server&) = delete;
  ~Server() {
    ::kill(process_, SIGKILL);
    if (!ended_) ::waitpid(process_, nullptr, 0);
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  std::string path() const { return folder_ / "socket"; }
  /// Whether it answers; false if there is no such program.
  bool is_up() {
    for (int i = 0; i < 500; ++i) {
      if (::waitpid(process_, nullptr, WNOHANG) == process_) return ended_ = true, false;
      try {
        return Client(path()).ask({"PING"}).text == "PONG";
      } catch (const std::system_error&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return false;
  }

 private:
  std::filesystem::path folder_;
  pid_t process_ = 0;
  bool ended_ = false;
};

void print(const char* name, const char* unit, std::vector<double> samples) {
  std::ranges::sort(samples);
  const shoal::bench::Figure figure{
      "Redis, Unix socket", name,           "median",      unit, samples[samples.size() / 2],
      samples.front(),      samples.back(), samples.size()};
  std::printf("%s\n", shoal::bench::json_line("containers", figure).c_str());
  std::fflush(stdout);
}

template <class Call>
void timed(const char* name, int each, Call&& call) {
  std::vector<double> samples;
  for (int i = -2; i < 20; ++i) {
    const double took = shoal::bench::seconds([&] {
      for (int k = 0; k < each; ++k) call();
    });
    if (i >= 0) samples.push_back(took * 1e6 / each);
  }
  print(name, "us", std::move(samples));
}

void expect(bool right) {
  if (!right) throw std::runtime_error("redis: another answer than what was put there");
}

/// Reads of so many processes at once, each by a connection of its own.
double reads_at_once(const std::string& path, int processes) {
  int pipe[2];
  if (::pipe(pipe) != 0) fail("pipe");
  for (int i = 0; i < processes; ++i)
    if (::fork() == 0) {
      Client client(path);
      long count = 0;
      for (const auto begin = Clock::now(); Clock::now() - begin < kDuration; ++count)
        if (client.ask({"HGET", "numbers", "key7"}).text != "7") ::_exit(1);
      ::_exit(::write(pipe[1], &count, sizeof count) == sizeof count ? 0 : 1);
    }
  long sum = 0;
  for (int i = 0; i < processes; ++i) {
    long count = 0;
    int status = 0;
    expect(::wait(&status) > 0 && status == 0 && ::read(pipe[0], &count, sizeof count) == sizeof count);
    sum += count;
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  return double(sum) / kDuration.count();
}

}  // namespace

int main() {
  Server server;
  if (!server.is_up()) {
    std::fprintf(stderr, "# redis-server is not there, or does not start: its rows are missing\n");
    return 0;
  }
  Client redis(server.path());
  for (int i = 0; i < 1000; ++i) {
    const std::string number = std::to_string(i);
    redis.ask({"HSET", "numbers", "key" + number, number});
    redis.ask({"RPUSH", "list", number});
  }
  redis.ask({"HSET", "texts", "kib", std::string(1024, 'x'), "mib", std::string(1 << 20, 'x')});
  timed("dict: read a number", 500, [&] { expect(redis.ask({"HGET", "numbers", "key7"}).text == "7"); });
  timed("dict: write a number", 500, [&] { redis.ask({"HSET", "numbers", "key7", "7"}); });
  timed("dict: add 1 under a lock", 500, [&] { redis.ask({"HINCRBY", "numbers", "key7", "1"}); });
  redis.ask({"HSET", "numbers", "key7", "7"});
  timed("dict: read 1 KiB", 500, [&] { expect(redis.ask({"HGET", "texts", "kib"}).text.size() == 1024); });
  timed("dict: read 1 MiB", 20, [&] { expect(redis.ask({"HGET", "texts", "mib"}).text.size() == 1 << 20); });
  timed("dict: all 1000 items", 20, [&] { expect(redis.ask({"HGETALL", "numbers"}).parts.size() == 2000); });
  timed("list: read a number", 500, [&] { expect(redis.ask({"LINDEX", "list", "500"}).text == "500"); });
  timed("list: append and pop", 200, [&] {
    redis.ask({"RPUSH", "list", "1"});
    expect(redis.ask({"RPOP", "list"}).text == "1");
  });
  std::vector<double> rates;
  for (int i = 0; i < 3; ++i) rates.push_back(reads_at_once(server.path(), 2));
  print("dict: reads of 2 processes at once", "1/s", rates);
  return 0;
}
