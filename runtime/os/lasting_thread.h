// A thread that ends with its process.
#pragma once

#include <functional>

namespace shoal {

/// Runs `work` in a thread that lasts as long as this process and waits for it: in the calling thread if
/// that is the main one, else in a thread of shoal's own, made at the first such call. Exceptions of
/// `work` come out of the call. Threads: any. It exists because the kernel ends a child when the
/// *thread* that made it ends (see parent_death.h).
///
/// If `work` forks, the child goes on inside `work` and must not return from it.
void in_lasting_thread(const std::function<void()>& work);

}  // namespace shoal
