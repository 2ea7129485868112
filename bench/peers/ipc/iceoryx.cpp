// Peer: iceoryx. Its daemon is started and ended here. What it publishes goes to all subscribers, so that several
// consumers that share the messages are no case of its; sizes end where its default pools end.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iceoryx_hoofs/log/logmanager.hpp>
#include <iceoryx_posh/popo/untyped_publisher.hpp>
#include <iceoryx_posh/popo/untyped_subscriber.hpp>
#include <iceoryx_posh/popo/wait_set.hpp>
#include <iceoryx_posh/runtime/posh_runtime.hpp>
#include <optional>
#include <stdexcept>

#include "bench/peers/ipc/transport.h"

extern char** environ;

namespace {

using namespace shoal::bench;

void join_daemon() {
  static pid_t joined = 0;
  if (joined == ::getpid()) return;
  joined = ::getpid();
  iox::log::LogManager::GetLogManager().SetDefaultLogLevel(iox::log::LogLevel::kOff,
                                                           iox::log::LogLevelOutput::kHideLogLevel);
  std::string name = "shoal_bench_" + std::to_string(joined);
  iox::runtime::PoshRuntime::initRuntime(iox::RuntimeName_t(iox::cxx::TruncateToCapacity, name.c_str()));
}

iox::capro::ServiceDescription service(int way) {
  std::string name = "way_" + std::to_string(way);
  return {"shoal", "bench", iox::capro::IdString_t(iox::cxx::TruncateToCapacity, name.c_str())};
}

class PublisherEnd : public End {
 public:
  explicit PublisherEnd(int way) {
    iox::popo::PublisherOptions options;
    options.subscriberTooSlowPolicy = iox::popo::ConsumerTooSlowPolicy::WAIT_FOR_CONSUMER;
    publisher_.emplace(service(way), options);
    while (!publisher_->hasSubscribers()) ::usleep(1000);
  }
  void send(std::span<const std::byte> message) override {
    publish(message.size(), [&](void* chunk) { std::memcpy(chunk, message.data(), message.size()); });
  }
  void send_loaned(std::size_t size) override {
    publish(size, [](void* chunk) { *static_cast<char*>(chunk) = 1; });
  }
  void receive(std::span<std::byte>) override { throw std::logic_error("a publisher does not receive"); }

 private:
  template <class Fill>
  void publish(std::size_t size, Fill&& fill) {
    for (bool done = false; !done;)  // all chunks may be on their way
      publisher_->loan(std::uint32_t(size)).and_then([&](void*& chunk) {
        fill(chunk);
        publisher_->publish(chunk);
        done = true;
      });
  }
  std::optional<iox::popo::UntypedPublisher> publisher_;
};

/// Looks for a message for 50 us, then sleeps: what shoal does too.
class SubscriberEnd : public End {
 public:
  SubscriberEnd(int way, std::size_t capacity) {
    iox::popo::SubscriberOptions options;
    options.queueCapacity = std::min<std::size_t>(capacity, 256);
    options.queueFullPolicy = iox::popo::QueueFullPolicy::BLOCK_PRODUCER;
    subscriber_.emplace(service(way), options);
    waiting_.attachState(*subscriber_, iox::popo::SubscriberState::HAS_DATA).or_else([](auto&) {
      throw std::runtime_error("iceoryx: attachState failed");
    });
  }
  ~SubscriberEnd() override { waiting_.detachState(*subscriber_, iox::popo::SubscriberState::HAS_DATA); }
  void receive(std::span<std::byte> into) override {
    take([&](const void* chunk) { std::memcpy(into.data(), chunk, into.size()); });
  }
  void receive_loaned(std::size_t) override {
    take([](const void* chunk) { (void)*static_cast<const volatile char*>(chunk); });
  }
  void send(std::span<const std::byte>) override { throw std::logic_error("a subscriber does not send"); }

 private:
  template <class Read>
  void take(Read&& read) {
    auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    for (;;) {
      bool done = false;
      subscriber_->take().and_then([&](const void* chunk) {
        read(chunk);
        subscriber_->release(chunk);
        done = true;
      });
      if (done) return;
      if (std::chrono::steady_clock::now() > until) waiting_.wait();
    }
  }
  std::optional<iox::popo::UntypedSubscriber> subscriber_;
  iox::popo::WaitSet<> waiting_;
};

class IceoryxWay : public Way {
 public:
  explicit IceoryxWay(const WayOptions& options) : way_(count_++), capacity_(options.capacity) {}
  std::unique_ptr<End> producer(int) override {
    join_daemon();
    return std::make_unique<PublisherEnd>(way_);
  }
  std::unique_ptr<End> consumer(int) override {
    join_daemon();
    return std::make_unique<SubscriberEnd>(way_, capacity_);
  }

 private:
  static inline int count_ = 0;
  int way_;
  std::size_t capacity_;
};

/// iox-roudi, ended with this object.
class Daemon {
 public:
  Daemon() {
    const char* arguments[] = {"iox-roudi", "--log-level", "off", nullptr};
    posix_spawn_file_actions_t quiet;
    ::posix_spawn_file_actions_init(&quiet);
    for (int descriptor : {STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&quiet, descriptor, "/dev/null", O_WRONLY, 0);
    if (::posix_spawnp(&pid_, arguments[0], &quiet, nullptr, const_cast<char**>(arguments), environ) != 0)
      throw std::runtime_error("iox-roudi could not be started: it is in the package iceoryx");
    ::usleep(500'000);
  }
  ~Daemon() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Daemon daemon;
  return answer(argc > 1 ? argv[1] : "",
                {.name = "iceoryx",
                 .make = [](const WayOptions& options) { return std::make_unique<IceoryxWay>(options); },
                 .largest = 4 << 20,
                 .many_to_many = false,
                 .loans = true});
}
