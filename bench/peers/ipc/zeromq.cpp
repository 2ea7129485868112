// Peer: ZeroMQ push and pull over ipc. Each producer has its own address; each consumer connects to all.
// It deals messages out in turn, not to who asks, so that consumers who wait for a share each are no case of its.
#include <unistd.h>
#include <zmq.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "bench/peers/ipc/transport.h"

namespace {

using namespace shoal::bench;

/// The context of this process: not inherited by fork, so made at first use.
void* context() {
  static thread_local void* made = nullptr;
  static thread_local pid_t owner = 0;
  if (owner != ::getpid()) {
    made = ::zmq_ctx_new();
    owner = ::getpid();
  }
  return made;
}

void check(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + zmq_strerror(zmq_errno()));
}

class ZmqEnd : public End {
 public:
  ZmqEnd(int type, std::size_t capacity) : socket_(::zmq_socket(context(), type)) {
    int most = int(capacity), linger = 0;
    ::zmq_setsockopt(socket_, ZMQ_SNDHWM, &most, sizeof most);
    ::zmq_setsockopt(socket_, ZMQ_RCVHWM, &most, sizeof most);
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
  }
  ~ZmqEnd() override { ::zmq_close(socket_); }
  void bind(const std::string& address) { check(::zmq_bind(socket_, address.c_str()), "zmq_bind"); }
  void connect(const std::string& address) { check(::zmq_connect(socket_, address.c_str()), "zmq_connect"); }
  void send(std::span<const std::byte> message) override {
    check(::zmq_send(socket_, message.data(), message.size(), 0), "zmq_send");
  }
  void receive(std::span<std::byte> into) override {
    check(::zmq_recv(socket_, into.data(), into.size(), 0), "zmq_recv");
  }

 private:
  void* socket_;
};

class ZmqWay : public Way {
 public:
  explicit ZmqWay(const WayOptions& options) : options_(options), maker_(::getpid()) {
    for (int i = 0; i < options.producers; ++i)
      paths_.push_back("/tmp/shoal_bench_" + std::to_string(maker_) + "_" + std::to_string(count_++));
  }
  ~ZmqWay() override {
    if (::getpid() == maker_)
      for (const std::string& path : paths_) std::filesystem::remove(path);
  }
  std::unique_ptr<End> producer(int index) override {
    auto end = std::make_unique<ZmqEnd>(ZMQ_PUSH, options_.capacity);
    end->bind("ipc://" + paths_.at(std::size_t(index)));
    return end;
  }
  std::unique_ptr<End> consumer(int) override {
    auto end = std::make_unique<ZmqEnd>(ZMQ_PULL, options_.capacity);
    for (const std::string& path : paths_) end->connect("ipc://" + path);
    return end;
  }

 private:
  static inline int count_ = 0;
  WayOptions options_;
  pid_t maker_;
  std::vector<std::string> paths_;
};

}  // namespace

int main(int argc, char** argv) {
  return answer(argc > 1 ? argv[1] : "",
                {.name = "zeromq",
                 .make = [](const WayOptions& options) { return std::make_unique<ZmqWay>(options); },
                 .many_to_many = false});
}
