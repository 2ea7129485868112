// From a place in a .beton file to the length of the region that begins there.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace shoal::detail {

/// The allocation table, which is in any order. In the order of places, as BetonWriter and FFCV with one process write
/// it, it is searched where it lies; otherwise a sorted copy is made when the first length is asked for. Records of no
/// bytes are passed over: they share their place with the region behind. Threads: any.
class AllocationIndex {
 public:
  /// `table`: whole records of 24 bytes, which outlive this object.
  explicit AllocationIndex(std::span<const std::uint8_t> table) : table_(table) {}

  /// The length of the region that begins at `place`; nothing if no record says one.
  std::optional<std::uint64_t> bytes_at(std::uint64_t place) const;

 private:
  struct Region {
    std::uint64_t place, bytes;
  };
  void look_at_order() const;
  std::size_t count() const;
  Region region(std::size_t number) const;

  std::span<const std::uint8_t> table_;
  mutable std::once_flag looked_;
  mutable bool in_order_ = false;
  mutable std::vector<Region> sorted_;
};

}  // namespace shoal::detail
