#include <shoal/internal/tensors/cuda/awaited_words.h>

#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/word.h>

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

Word word_of(const Hold& page, std::uint32_t index) {
  return {reinterpret_cast<DeviceWordsLayout*>(page.data()), index};
}

}  // namespace

/// Under the lock. What a dead process had queued is over, so its words say nothing any more.
void AwaitedWords::prune(std::vector<Hold>& given_up) {
  given_up.reserve(words_.size());  // so that nothing throws among words that are being moved
  std::erase_if(words_, [&](AwaitedWord& each) {
    const Word word = word_of(each.page, each.index);
    if (!word.has(each.value) && Session::current().is_alive(ProcessTag::from_word(word.page->producer))) return false;
    given_up.push_back(std::move(each.page));
    return true;
  });
}

void AwaitedWords::add(const Hold& page, const SentWord& sent) {
  if (word_of(page, sent.index).has(sent.value)) return;
  std::vector<Hold> given_up;  // outside the lock
  std::lock_guard lock(mutex_);
  prune(given_up);
  auto known = std::ranges::find_if(
      words_, [&](const AwaitedWord& each) { return each.page.block() == page.block() && each.index == sent.index; });
  if (known != words_.end())
    known->value = std::max(known->value, sent.value);
  else
    words_.push_back({page.share(), sent.index, sent.value});
}

std::vector<AwaitedWord> AwaitedWords::unreached() {
  std::vector<Hold> given_up;  // outside the lock
  std::vector<AwaitedWord> result;
  std::lock_guard lock(mutex_);
  prune(given_up);
  result.reserve(words_.size());
  for (const AwaitedWord& each : words_) result.push_back({each.page.share(), each.index, each.value});
  return result;
}

}  // namespace shoal
