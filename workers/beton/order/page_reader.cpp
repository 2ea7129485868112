#include <shoal/internal/workers/beton/order/page_reader.h>

#include <fcntl.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/ipc/fd.h>
#include <unistd.h>

#include <algorithm>
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
    state_->closing = state_->stops = true;
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
  state_->stops = true;
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
    stops = false;
    // First what makes room.
    auto& next = to_give_back.empty() ? to_read : to_give_back;
    const FilePage page = std::move(next.front());
    next.pop_front();
    if (&next == &to_read) {
      read(lock, page);
    } else {
      lock.unlock();
      page.first.forget_page(page.second);
      for (const FilePage& before : given_back) before.first.forget_page(before.second);
      given_back.push_back(page);
      if (given_back.size() > kAgain) given_back.pop_front();
      lock.lock();
    }
    is_busy = false;
    if (is_idle()) changed.notify_all();
  }
}

/// Unlocks while it reads. Of one call Linux reads no more than the device's read-ahead, or its largest transfer: hence
/// pieces. Calls of pread() would copy the bytes for nobody, and read beyond the page, as a file's reader goes on.
void PageReader::State::read(std::unique_lock<std::mutex>& lock, const FilePage& page) {
  lock.unlock();
  const auto& [file, number] = page;
  const Fd from = lift(Fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC)));
  const bool is_there = number <= file.file_bytes() / file.page_bytes();
  std::uint64_t at = is_there ? number * file.page_bytes() : 0;
  const std::uint64_t end = is_there ? std::min(at + file.page_bytes(), file.file_bytes()) : 0;
  lock.lock();
  for (; from && at < end && !stops; at += kPiece) {
    lock.unlock();
    ::readahead(from.get(), off64_t(at), std::size_t(std::min(end - at, kPiece)));
    lock.lock();
  }
}

}  // namespace shoal::detail
