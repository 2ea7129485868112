// Where in the program this process's session was made.
#pragma once

#include <cstdint>
#include <span>

namespace shoal {

/// The calls that led to it, innermost first, as addresses of instructions. Empty if this process has joined
/// another's session, or has none. For a message about a session that was made too early.
std::span<const std::uintptr_t> session_made_at() noexcept;

/// Called by Session when it makes a session.
void note_session_made() noexcept;

}  // namespace shoal
