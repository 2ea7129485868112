// What the peers written in C++ have in common: the questions. Each peer says how it sends and receives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace shoal::bench {

/// One process's end of a way. Made in the process that uses it.
class End {
 public:
  virtual ~End() = default;
  virtual void send(std::span<const std::byte> message) = 0;
  /// A message of exactly this size.
  virtual void receive(std::span<std::byte> into) = 0;
  /// Where the peer can: a message that is only touched, in memory that the peer lends.
  virtual void send_loaned(std::size_t size);
  virtual void receive_loaned(std::size_t size);
};

/// A way for messages of at most `largest` bytes from some processes to others. Made before these are forked.
class Way {
 public:
  virtual ~Way() = default;
  virtual std::unique_ptr<End> producer(int index) = 0;
  virtual std::unique_ptr<End> consumer(int index) = 0;
};

struct WayOptions {
  std::size_t largest;
  std::size_t capacity;
  int producers = 1;
  int consumers = 1;
};

struct Transport {
  std::string name;
  std::function<std::unique_ptr<Way>(const WayOptions&)> make;
  std::size_t largest = ~std::size_t(0);  // bytes of a message that it can carry
  bool many_to_many = true;               // each message goes to one of several consumers
  bool loans = false;
};

/// Measures what `question` ("queue_round_trip", "queue_throughput" or "pipe") asks, and prints JSON lines.
int answer(const std::string& question, const Transport& transport);

}  // namespace shoal::bench
