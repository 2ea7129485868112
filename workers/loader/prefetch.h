// How many batches a loader has made ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::detail {

/// Bounded by prefetch_factor batches a worker and by prefetch_bytes. Below that as many as the loop needs: one less
/// after a while in which every batch lay ready when it was asked for, more at once when the loop had to wait. A plain
/// value.
class Prefetch {
 public:
  Prefetch(int workers, int factor, std::size_t bytes);

  std::size_t batches_ahead() const;
  void taken(bool was_ready);
  void delivered(std::uint64_t bytes);

 private:
  std::size_t workers_, most_, ahead_;
  std::size_t most_bytes_;
  double batch_bytes_ = 0;  // lately
  int ready_in_a_row_ = 0;
};

}  // namespace shoal::detail
