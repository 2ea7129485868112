// What a rank says that has waited too long: who is missing, and where that is.
#pragma once

#include <shoal/internal/runtime/report/stuck_report.h>

#include <string>

namespace shoal {

struct GroupLayout;

/// Writes the last calls of all ranks to stderr, side by side, with where the missing ones are; once in a group's life,
/// by the first rank that asks, unless SHOAL_LOG is none. Returns the line about the first missing rank; empty if another
/// rank has reported, or it cannot be told. Takes up to a third of a second.
std::string report_time_out(GroupLayout& layout, IdleRanks idle = IdleRanks::left_alone);

}  // namespace shoal
