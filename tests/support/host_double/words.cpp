// The host double's streams write and await words of registered memory, as CUDA's do.
#include <atomic>
#include <thread>

#include "tests/support/host_double/captures.h"
#include "tests/support/host_double/driver_state.h"
#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/memory.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {
namespace {

std::atomic<bool> words_allowed{true};
std::atomic<int> word_waits{0};
std::atomic<pid_t> dead_one{0};
std::atomic<AfterDeath> after_death{AfterDeath::kNothing};

/// A stream that stands before a word.
struct Wait {
  std::atomic_ref<std::uint64_t> word;
  std::uint64_t value;
  AfterDeath left = after_death;  // to be done by the device of dead_one

  bool is_over() {
    if (left != AfterDeath::kNothing && !is_running(dead_one)) {
      // relaxed: the device's, which orders nothing behind a dead process's.
      if (left == AfterDeath::kWritesAll)
        write(value);
      else if (word.load(std::memory_order_relaxed) >= value)
        write(value - 1);
    }
    return word.load(std::memory_order_acquire) >= value;  // acquire: what the stream does next sees what came before
  }

 private:
  void write(std::uint64_t written) {
    word.store(written, std::memory_order_release);  // as each write of a device's
    left = AfterDeath::kNothing;
  }
};

/// As the driver checks addresses: when the work is queued.
void check(Memory& memory, const std::uint64_t* word, Streams::Key stream) {
  require_driver();
  make_context(stream.first);
  if (!words_allowed || refused() == Refusal::kWords) throw DeviceError("the double: its streams know no words");
  if (!memory.is_registered(word)) throw DeviceError("the double: a word that is not in registered memory");
  if (is_captured(stream)) throw DeviceError("the double: a word that others use, in a capture");
}

}  // namespace

void allow_words(bool allowed) { words_allowed = allowed; }
int words_awaited() { return word_waits; }

void set_queues(int queues) { Streams::current().set_queues(queues); }

void set_after_death(pid_t process, AfterDeath what) {
  dead_one = process;
  after_death = what;
}

bool Memory::has_words(int) { return words_allowed; }
std::size_t Memory::most_waiting_streams(int) { return most_waiting_in(std::size_t(Streams::current().queues())); }

void Memory::write_word(void* stream, std::uint64_t* word, std::uint64_t value, int device) {
  const Streams::Key key = key_of(stream, device);
  check(*this, word, key);
  std::this_thread::yield();  // a driver's call is no moment: two threads may both be in one
  if (!Streams::current().enqueue_write(key, word, value))
    throw DeviceError("the double: a word is to be lowered, or to get the same value twice");
}

void Memory::wait_word(void* stream, const std::uint64_t* word, std::uint64_t value, int device) {
  const Streams::Key key = key_of(stream, device);
  check(*this, word, key);
  ++word_waits;
  const auto wait = std::make_shared<Wait>(std::atomic_ref(*const_cast<std::uint64_t*>(word)), value);
  Streams::current().await_from_outside(key, word, [wait] { return wait->is_over(); });
}

std::uint64_t Memory::stream_number(void* stream, int device) {
  require_driver();
  return std::uint64_t(key_of(stream, device).second);
}

bool Memory::is_captured(void* stream, int device) {
  require_driver();
  make_context(device);
  return host_double::is_captured(key_of(stream, device));
}

}  // namespace shoal::host_double
