// One object of a process, which its forks do not share.
#pragma once

#include <shoal/internal/ipc/fork/at_fork.h>

#include <atomic>
#include <mutex>
#include <new>

namespace shoal {

/// Makes a T at its first use, and never destroys it: what has static storage may need it late, and it may have a
/// thread. For a constinit variable. Threads: any; T's constructor is called by one. What it throws comes out, and the
/// next use tries again.
///
/// A fork's child has to forget() it, as a step of AtFork in ipc/fork/at_fork.h: its copy of the parent's object is
/// leaked, with the locks that were held and without the threads.
template <class T>
class OnePerProcess {
 public:
  constexpr OnePerProcess() = default;
  OnePerProcess(const OnePerProcess&) = delete;

  T& get() {
    if (T* there = if_there()) return *there;
    std::lock_guard lock(making_);
    if (T* there = if_there()) return *there;
    T* made = new T;
    there_.store(made, std::memory_order_release);  // R1: whoever finds it finds it whole
    return *made;
  }

  T* if_there() const noexcept {
    return there_.load(std::memory_order_acquire);  // A1: pairs with R1
  }

  /// In a fork's child. One that another thread of the parent was making is not there.
  void forget() noexcept {
    T* there = if_there();
    if (!there && forks_alone()) return;  // nobody was making one, either: the page stays the parent's
    if (there) parents_ = there;
    there_.store(nullptr, std::memory_order_relaxed);  // relaxed: there is one thread
    new (&making_) std::mutex;
  }

 private:
  std::atomic<T*> there_{nullptr};
  T* parents_ = nullptr;  // still referred to, so that leak checkers do not ask
  std::mutex making_;
};

}  // namespace shoal
