// What the rooms of a session do around a fork.
#pragma once

namespace shoal {

/// Any of them may be null.
struct AtFork {
  void (*before)() noexcept = nullptr;
  void (*in_parent)() noexcept = nullptr;
  /// In the child there is one thread, and locks that other threads of the parent had stay locked: make them anew, or
  /// take them before.
  void (*in_child)() noexcept = nullptr;
};

/// Registers steps to be called around each fork of this process: before it the last registered come first, after it
/// the first. In the child the session has done its own part by then: no slot, another fork count. If steps with a
/// `before` are registered during a fork, that fork leaves them out. `steps` must stay; registering it again changes
/// nothing. At most eight. Threads: any.
void at_fork(const AtFork& steps) noexcept;

namespace at_fork_steps {
// Called by the session, which alone registers with the C library.
void before() noexcept;
void in_parent() noexcept;
void in_child() noexcept;
}  // namespace at_fork_steps

}  // namespace shoal
