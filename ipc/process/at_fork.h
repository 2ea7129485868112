// What the rooms of a session do around a fork.
#pragma once

namespace shoal {

/// Any of them may be null.
struct AtFork {
  void (*before)() noexcept = nullptr;
  void (*in_parent)() noexcept = nullptr;
  /// The child has one thread, and what other threads of the parent had locked stays locked: locks are made anew, or
  /// were taken before.
  void (*in_child)() noexcept = nullptr;
};

/// From now on these are called around each fork of this process: before it the last ones given come first, after it
/// the first ones. In the child the session has done its own part by then: no slot, another fork count. A fork that has
/// begun leaves out what is given meanwhile and has a `before`. `steps` stays; given a second time, it changes nothing.
/// At most eight. Threads: any.
void at_fork(const AtFork& steps) noexcept;

namespace at_fork_steps {
// By the session, which is the one that the C library calls.
void before() noexcept;
void in_parent() noexcept;
void in_child() noexcept;
}  // namespace at_fork_steps

}  // namespace shoal
