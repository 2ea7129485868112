// How often this thread has called operator new, and for how many bytes: workers_test replaces it, in transforms_test.cpp.
#pragma once

#include <cstdint>

namespace shoal::test {
extern thread_local std::int64_t allocations, allocated_bytes;
}
