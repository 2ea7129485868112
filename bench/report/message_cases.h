// What the message benchmarks do, for shoal and its peers alike: sizes, how often, and the names of the cases.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace shoal::bench {

struct MessageSize {
  std::size_t bytes;
  const char* name;
  int round_trips;  // of messages whose bytes are copied
};

inline constexpr std::array kRoundTripSizes{MessageSize{0, "0 B", 20'000}, MessageSize{64, "64 B", 20'000},
                                            MessageSize{4096, "4 KiB", 20'000}, MessageSize{1 << 20, "1 MiB", 500},
                                            MessageSize{64 << 20, "64 MiB", 20}};
inline constexpr int kAsleepRoundTrips = 500;
inline constexpr int kAsleepMicros = 2000;  // enough for both sides to fall asleep

inline std::string bytes_case(const MessageSize& size) { return std::string("bytes ") + size.name + " copied, busy"; }
inline const std::string kBytesAsleep = "bytes 64 B copied, both asleep";
inline const std::string kPipeOfInt = "pipe of an int, busy";

/// One way. A round is timed as a whole; all producers and consumers start it together.
struct Flow {
  const char* what;
  std::size_t bytes;
  int messages;          // a round, all producers together
  std::size_t in_queue;  // capacity
};

inline constexpr Flow kSmallFlow{"64 B", 64, 400'000, 1024};
inline constexpr Flow kMegabyteFlow{"fresh 1 MiB", 1 << 20, 2'000, 8};
inline constexpr Flow kLargeFlow{"fresh 64 MiB", 64 << 20, 24, 2};
inline constexpr Flow kLoanFlow{"loaned 1 MiB", 1 << 20, 100'000, 4};
inline constexpr int kRounds = 7;

inline std::string flow_case(const Flow& flow, int sides = 1) {
  return std::string(flow.what) + ", " + std::to_string(sides) + " x " + std::to_string(sides);
}

}  // namespace shoal::bench
