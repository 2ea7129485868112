// How near two CPUs are: what a figure of processes that share memory hangs on, and what the machine may change while it runs.
#pragma once

#include <optional>

namespace shoal::bench {

/// Nanoseconds that a cache line takes to the other CPU and back, the median of 20 times 500: between this process's first and
/// last CPU; nothing if it has one alone. CPUs of one third-level cache are near (75 ns on an EPYC), those of two are far
/// (390 ns there). The host of a virtual machine may move its CPUs from one to the other at any time. Takes some milliseconds,
/// 0.2 s at the most: nothing also where both threads have come to one CPU.
std::optional<double> line_round_trip();

}  // namespace shoal::bench
