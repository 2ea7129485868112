// The extents of this session's heap.
#pragma once

#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/session.h>

#include <cstdint>

namespace shoal::test {

inline const Extents& extents() { return Session::current().heap().extents(); }
inline std::uint64_t committed() { return extents().recount().committed; }

}  // namespace shoal::test
