// A session that was made before shoal::init, which started processes could not join.
#pragma once

namespace shoal {

/// By shoal::init, in a process that no other one of shoal's has started.
void note_early_session() noexcept;

/// Throws std::logic_error if the session of this process was there before shoal::init: the function that made it,
/// and where it belongs. By those that start this program once more, whose static variables would make such a session
/// again.
void refuse_early_session();

}  // namespace shoal
