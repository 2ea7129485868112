// Hooks by which layers above take part in the life of processes. Static initializers register them, that is before
// main() calls shoal::init, because the fork server and started children never get further than that.
#pragma once

namespace shoal {

/// Registers a function that the fork server runs once, so that its children need not do what takes long (loading,
/// warming up). It must leave no thread running, since a fork would lose it; the server itself ends threads of an
/// OpenMP library.
void register_preload(void (*preload)());

/// Registers a function that a started child calls with the number of threads for its computations.
void register_thread_setter(void (*set_threads)(int threads));

/// Registers a function that is called before a fork. It returns the reason why this process cannot be forked now (a
/// static text), or null.
void register_fork_refusal(const char* (*refusal)());

namespace hooks {
void run_preloads();
void set_threads(int threads);
const char* fork_refusal();  ///< the first refusal, or null
}  // namespace hooks

}  // namespace shoal
