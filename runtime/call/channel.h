// The channel by which a parent gives its child a call, and the child returns its result.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/internal/runtime/cpu/cpu_set.h>
#include <shoal/internal/runtime/environment/local_rank.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/failure.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// Comes before the arguments in the parent's message.
struct StartHeader {
  std::string name;
  int rank = -1;
  int nprocs = 1;
  detail::WorksFor works_for;
  int num_threads = 0;                                 // 0: leave it
  bool prints_failure = false;                         // for processes whose failure perhaps nobody asks for
  StartMethod start_method = StartMethod::forkserver;  // the child's default: the parent's
  CpuSet cpus;                                         // CPUs to run on; empty: any
  std::vector<std::pair<std::string, std::string>> environment;
  ImageFunction entry, function;  // `function` is empty if `entry` alone says what to call
};

/// The message of a child whose function threw.
struct FailureReport {
  std::int64_t time = 0;                 // steady clock, the same in all processes: tells which failure was first
  std::vector<ExceptionSummary> raised;  // and what is nested in it, outermost first
};

/// First byte of every message.
enum class ChannelMessage : std::uint8_t { kStart = 1, kResult = 2, kFailure = 3 };

/// A ring in the heap for the two messages of a child's life. The parent writes the first before the child exists, and
/// looks for the second after the child's end. So one ring serves both ways, nobody ever waits on it, and a child's
/// death at any moment leaves a whole message or none. One object in the parent, one in the child; one thread at a time
/// uses each.
class Channel {
 public:
  static Channel create();
  /// In the child: opens the channel that its parent lent. Throws Error if the parent is dead and the hold was given
  /// back.
  static Channel adopt(const HoldRef& lent, ProcessTag parent);

  /// Makes a hold for the child to adopt.
  HoldRef lend() const { return ring_.hold().share_in_transit(); }

  /// Begins a message.
  static void begin(Encoder& encoder, ChannelMessage kind) { encoder.write(kind); }
  void send(Encoder& message);
  /// Returns the message that is there now, if any.
  std::optional<Received> receive();

 private:
  explicit Channel(Ring ring) : ring_(std::move(ring)) {}
  Ring ring_;
};

}  // namespace shoal
