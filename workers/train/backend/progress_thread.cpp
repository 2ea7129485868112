#include <shoal/internal/workers/train/backend/progress_thread.h>

#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>

#include <utility>

namespace shoal {

ProgressThread::ProgressThread() : fork_count_(fork_count()), state_(std::make_unique<State>()) {
  state_->thread = make_service_thread("shoal-reduce", [state = state_.get()] {
    state->run();
    if (state->is_threads) delete state;
  });
}

ProgressThread::~ProgressThread() {
  if (fork_count() != fork_count_) {
    [[maybe_unused]] auto* left = state_.release();  // the parent's thread may hold its lock
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    // What was chained to a result had the last share of the group. The rest is done here: it needs the group, which is
    // gone when this returns. Then the thread ends, and takes its state along.
    {
      std::unique_lock lock(state_->mutex);
      state_->work_off(lock);
    }
    state_->is_threads = true;
    state_->thread.detach();
    [[maybe_unused]] auto* left = state_.release();
    return;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

void ProgressThread::push(std::function<void()> task) {
  {
    std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  state_->changed.notify_one();
}

void ProgressThread::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closing || !tasks.empty(); });
    if (tasks.empty()) return;
    work_off(lock);
  }
}

void ProgressThread::State::work_off(std::unique_lock<std::mutex>& lock) {
  while (!tasks.empty()) {
    auto task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // it may keep tensors
    lock.lock();
  }
}

}  // namespace shoal
