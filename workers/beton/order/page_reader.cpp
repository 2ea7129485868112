#include <shoal/internal/workers/beton/order/page_reader.h>

#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>

#include <exception>

namespace shoal::detail {
namespace {

bool is_same(const FilePage& a, const FilePage& b) { return a.second == b.second && a.first.path() == b.first.path(); }

}  // namespace

PageReader::PageReader() : fork_count_(shoal::fork_count()), state_(std::make_unique<State>()) {}

PageReader::~PageReader() {
  if (!is_mine()) {
    [[maybe_unused]] auto* left = state_.release();  // the parent's thread may hold its lock
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

bool PageReader::is_mine() const { return shoal::fork_count() == fork_count_; }

bool PageReader::start() {
  if (state_->thread.joinable()) return true;
  try {
    state_->thread = make_service_thread("shoal-pages", [state = state_.get()] { state->run(); });
  } catch (const std::exception&) {
    return false;  // no more threads are to be had: the loop waits for its pages
  }
  return true;
}

void PageReader::read(const FilePage& page) {
  if (!is_mine() || !start()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->to_read.push_back(page);
  }
  state_->changed.notify_all();
}

void PageReader::give_back(const FilePage& page) {
  if (!is_mine() || !start()) return;
  {
    std::lock_guard lock(state_->mutex);
    std::erase_if(state_->to_read, [&](const FilePage& queued) { return is_same(queued, page); });
    state_->to_give_back.push_back(page);
  }
  state_->changed.notify_all();
}

void PageReader::forget_reads() {
  if (!is_mine()) return;
  std::lock_guard lock(state_->mutex);
  state_->to_read.clear();
}

void PageReader::wait() {
  if (!is_mine()) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->is_idle(); });
}

void PageReader::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closing || !to_read.empty() || !to_give_back.empty(); });
    if (closing) return;
    is_busy = true;
    // First what makes room.
    const bool gives_back = !to_give_back.empty();
    auto& next = gives_back ? to_give_back : to_read;
    const FilePage page = std::move(next.front());
    next.pop_front();
    lock.unlock();
    if (gives_back) {
      given_back.push_back(page);
      for (const auto& [file, number] : given_back) file.forget_page(number);
      if (given_back.size() > kAgain) given_back.pop_front();
    } else {
      page.first.prefetch_page(page.second);
    }
    lock.lock();
    is_busy = false;
    if (is_idle()) changed.notify_all();
  }
}

}  // namespace shoal::detail
