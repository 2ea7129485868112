// Which old bytes of a line each new one is made of, laid out for vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

/// Weights are whole numbers of 2^-bits. Its memory is of the TransformScratch that column_taps() was given, until the frame
/// in which it was made ends. Threads: any may read.
struct ColumnTaps {
  static constexpr std::size_t kLanes = 8, kBytes = 16;
  /// New bytes, of which those that were not asked for are of any value.
  std::size_t rounded_up() const { return groups * kLanes; }
  std::size_t colors;     // side by side in a line: 1 or 3. A byte's neighbours are so many bytes apart
  std::size_t groups;     // of kLanes new bytes; an even number
  std::size_t pairs;      // of old bytes that each is made of
  std::size_t reach;      // bytes of an old line that are read, whether they weigh anything or not
  std::int32_t* starts;   // [groups][kLanes]
  std::int32_t* lowest;   // [groups]: of a group's starts
  std::int16_t* weights;  // [groups][pairs][kLanes][2]
  std::uint8_t* places;   // [groups][kLanes][2]: a pair's places, from the group's lowest start on
  bool is_near;           // all places of a group are within kBytes
  int bits;               // behind the point of weights
};

/// Bits behind the point of what is made of columns.
constexpr int kFractionBits = 7;

}  // namespace shoal
