// Notes each collective of one rank where those that look on find it.
#pragma once

#include <shoal/internal/ipc/layout/flight_record.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <time.h>

#include <cstdint>

namespace shoal {

/// One rank's log (see FlightLog): some stores to a line of its own for each collective, and two looks at a clock that
/// costs no system call. Owned by its Communicator; one thread at a time. Nobody waits for it or decides by it.
class FlightRecorder {
 public:
  /// Starts the log of a rank that this process has just joined as.
  FlightRecorder(GroupLayout& layout, int rank);
  FlightRecorder(const FlightRecorder&) = delete;
  ~FlightRecorder();

  /// Counts from 1 again, as this rank of a group over several hosts, of whose ranks this group has some.
  void begin_as(int rank) noexcept;

  /// That have begun.
  std::uint64_t calls() const noexcept { return calls_; }

  /// A collective begins. One that had begun and did not end has failed.
  void begin(Collective what, std::uint32_t type, std::uint64_t bytes) noexcept;
  void end(bool failed) noexcept {
    if (!open_ || whole_) return;
    // release: whoever copies the bytes does not see the next call before it.
    open_->end.store(now() | (failed ? FlightRecord::kFailed : 0), std::memory_order_release);
    open_ = nullptr;
  }

 private:
  /// Even.
  static std::uint64_t now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (std::uint64_t(time.tv_sec) * 1'000'000'000 + std::uint64_t(time.tv_nsec)) & ~FlightRecord::kFailed;
  }

  FlightLog& log_;
  std::uint32_t fork_count_;  // of the process that joined: a forked copy of this object writes nothing
  std::uint64_t calls_ = 0;
  FlightRecord* open_ = nullptr;
  bool whole_ = false;  // in a WholeFlight

  friend class WholeFlight;
};

/// Around a collective: says how it ended.
class Flight {
 public:
  explicit Flight(FlightRecorder& recorder) noexcept;
  Flight(const Flight&) = delete;
  ~Flight();

 private:
  FlightRecorder& recorder_;
  int exceptions_;  // under way when it began
};

/// Around a collective over several hosts: the collectives of one host that it is made of are none for those that look on.
class WholeFlight {
 public:
  WholeFlight(FlightRecorder& recorder, Collective what, std::uint32_t type, std::uint64_t bytes) noexcept;
  WholeFlight(const WholeFlight&) = delete;
  ~WholeFlight();

 private:
  FlightRecorder& recorder_;
  int exceptions_;  // under way when it began
};

}  // namespace shoal
