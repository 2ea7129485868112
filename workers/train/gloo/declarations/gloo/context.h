// What c10d's ProcessGroupGloo.hpp uses of Gloo's header of this name: see gloo_group.h.
#pragma once

#include <chrono>

namespace gloo {

namespace transport {
class UnboundBuffer;
}

/// Made and destroyed by libtorch alone: what it has inside is not said here.
class Context {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): its own name.
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
