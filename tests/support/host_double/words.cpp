// The host double's streams write and await words of registered memory, as CUDA's do.
#include <atomic>

#include "tests/support/host_double/captures.h"
#include "tests/support/host_double/driver_state.h"
#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/memory.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {
namespace {

std::atomic<bool> words_allowed{true};
std::atomic<int> word_waits{0};

/// As the driver checks addresses: when the work is queued.
void check(Memory& memory, const std::uint64_t* word, Streams::Key stream) {
  require_working();
  make_context(stream.first);
  if (!words_allowed) throw DeviceError("the double: its streams know no words");
  if (!memory.is_registered(word)) throw DeviceError("the double: a word that is not in registered memory");
  if (is_captured(stream)) throw DeviceError("the double: a word that others use, in a capture");
}

}  // namespace

void allow_words(bool allowed) { words_allowed = allowed; }
int words_awaited() { return word_waits; }

bool Memory::has_words(int) { return words_allowed; }

void Memory::write_word(void* stream, std::uint64_t* word, std::uint64_t value, int) {
  const Streams::Key key = key_of(stream);
  check(*this, word, key);
  Streams::current().enqueue(key, [word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); });
}

void Memory::wait_word(void* stream, const std::uint64_t* word, std::uint64_t value, int) {
  const Streams::Key key = key_of(stream);
  check(*this, word, key);
  ++word_waits;
  Streams::current().await_from_outside(key, [word = const_cast<std::uint64_t*>(word), value] {
    return std::atomic_ref(*word).load(std::memory_order_acquire) >= value;
  });
}

std::uint64_t Memory::stream_number(void* stream, int) { return std::uint64_t(key_of(stream).second); }

bool Memory::is_captured(void* stream, int) {
  require_working();
  return host_double::is_captured(key_of(stream));
}

}  // namespace shoal::host_double
