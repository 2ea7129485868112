// The locks of all shelves of a container.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/shelf.h>

#include <array>
#include <optional>

namespace shoal {

/// From the first shelf to the last one, so that two that want all of them do not wait for each other. No state that
/// lies in two shelves changes as long as the object lives.
class AllShelves {
 public:
  explicit AllShelves(const Container& container) : count_(container->shelves) {
    for (std::uint32_t i = 0; i < count_; ++i) locked_[i].emplace(container, i);
  }
  std::uint32_t count() const { return count_; }
  LockedShelf& operator[](std::uint32_t index) { return *locked_[index]; }

 private:
  std::uint32_t count_;
  std::array<std::optional<LockedShelf>, ContainerLayout::kMostShelves> locked_;
};

/// Empties the container for everyone at once, by one store. What it costs to drop the entries comes after that, and
/// whoever comes to a shelf first does it if this process dies.
inline void clear_all(const Container& container) {
  AllShelves shelves(container);
  // relaxed: all that read it have a lock that is held here.
  const std::uint64_t epoch = container->epoch.load(std::memory_order_relaxed) + 1;
  SHOAL_KILL_POINT("container.clear.locked");
  container->epoch.store(epoch, std::memory_order_relaxed);  // relaxed: likewise; R1 of the next change comes after it
  SHOAL_KILL_POINT("container.clear.stored");
  for (std::uint32_t i = 0; i < shelves.count(); ++i) {
    shelves[i].empty();
    shelves[i].layout().epoch = epoch;
    SHOAL_KILL_POINT("container.clear.shelf");
  }
}

}  // namespace shoal
