// Where layers above take part in the life of processes. Registered by static initializers, that is
// before main() calls shoal::init: the fork server and started children never get further than that.
#pragma once

namespace shoal {

/// Run once by the fork server, so that its children find done what takes long (loading, warming up).
/// Must leave no thread running: a fork would lose it. Those of an OpenMP library are ended behind it.
void register_preload(void (*preload)());

/// Told in a started child how many threads it may use for its computations.
void register_thread_setter(void (*set_threads)(int threads));

/// Asked before a fork: why this process cannot be forked now (a static text), or null.
void register_fork_refusal(const char* (*refusal)());

namespace hooks {
void run_preloads();
void set_threads(int threads);
const char* fork_refusal();  ///< the first one, or null
}  // namespace hooks

}  // namespace shoal
