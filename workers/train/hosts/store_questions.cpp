#include <shoal/internal/workers/train/hosts/store_questions.h>

#include <shoal/internal/ipc/fork/service_thread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <utility>

namespace shoal {
namespace {

/// Long for a store that lives, also on a busy machine.
constexpr std::chrono::milliseconds kAnswerWithin{2000};

}  // namespace

struct StoreQuestions::Asked {
  std::mutex mutex;
  std::condition_variable ended;
  Answer answer;
  bool was_waited_for = false;

  bool is_overdue() {
    const std::lock_guard lock(mutex);
    return was_waited_for && answer.end == End::open;
  }
};

StoreQuestions::~StoreQuestions() {
  for (const auto& asked : asked_) {
    std::lock_guard lock(asked->mutex);
    if (asked->answer.end == End::open) store_.sockets().shut_down();
  }
  for (std::thread& thread : threads_) thread.join();
}

StoreQuestions::Answer StoreQuestions::ask(const std::function<std::string(StoreConnection&)>& question) {
  // Asked first: where a call fails, libtorch writes a page to stderr.
  if (store_.sockets().has_ended()) return {End::refused, ""};
  const auto asked = std::make_shared<Asked>();
  std::chrono::milliseconds patience = kAnswerWithin;
  {
    std::lock_guard lock(mutex_);
    // Behind a question that the store has not answered, this one will not be answered either.
    if (std::ranges::any_of(asked_, [](const auto& before) { return before->is_overdue(); })) patience = {};
    asked_.push_back(asked);
    auto work = [this, asked, question] {
      Answer answer{End::refused, ""};
      try {
        answer = {End::answered, question(store_)};
      } catch (const std::exception&) {
        // The store has ended meanwhile.
      }
      std::lock_guard done(asked->mutex);
      asked->answer = std::move(answer);
      asked->ended.notify_all();
    };
    try {
      threads_.reserve(threads_.size() + 1);
      threads_.push_back(make_service_thread("shoal-asks", std::move(work)));
    } catch (const std::exception&) {
      return asked->answer = {End::refused, ""};  // no thread is to be had: who asks goes on as without a store
    }
  }
  std::unique_lock lock(asked->mutex);
  asked->ended.wait_for(lock, patience, [&] { return asked->answer.end != End::open; });
  asked->was_waited_for = true;
  return asked->answer;
}

}  // namespace shoal
