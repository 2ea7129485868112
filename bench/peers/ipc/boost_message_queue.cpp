// Peer: boost::interprocess::message_queue.
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/ipc/message_queue.hpp>
#include <optional>
#include <string>

#include "bench/peers/ipc/transport.h"

namespace {

using namespace shoal::bench;
using boost::interprocess::message_queue;

class QueueEnd : public End {
 public:
  explicit QueueEnd(message_queue& queue) : queue_(queue) {}
  void send(std::span<const std::byte> message) override { queue_.send(message.data(), message.size(), 0); }
  void receive(std::span<std::byte> into) override {
    message_queue::size_type got = 0;
    unsigned priority = 0;
    queue_.receive(into.data(), std::max(into.size(), queue_.get_max_msg_size()), got, priority);
  }

 private:
  message_queue& queue_;
};

class QueueWay : public Way {
 public:
  explicit QueueWay(const WayOptions& options)
      : name_("shoal_bench_" + std::to_string(::getpid()) + "_" + std::to_string(count_++)), maker_(::getpid()) {
    message_queue::remove(name_.c_str());
    queue_.emplace(boost::interprocess::create_only, name_.c_str(), options.capacity, options.largest);
  }
  ~QueueWay() override {
    queue_.reset();
    if (::getpid() == maker_) message_queue::remove(name_.c_str());
  }
  std::unique_ptr<End> producer(int) override { return std::make_unique<QueueEnd>(*queue_); }
  std::unique_ptr<End> consumer(int) override { return std::make_unique<QueueEnd>(*queue_); }

 private:
  static inline int count_ = 0;
  std::string name_;
  pid_t maker_;
  std::optional<message_queue> queue_;
};

}  // namespace

int main(int argc, char** argv) {
  return answer(argc > 1 ? argv[1] : "", {.name = "boost message_queue", .make = [](const WayOptions& options) {
                                            return std::make_unique<QueueWay>(options);
                                          }});
}
