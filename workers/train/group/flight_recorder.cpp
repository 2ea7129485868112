#include <shoal/internal/workers/train/group/flight_recorder.h>

#include <c10/core/ScalarType.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/workers/train/group/communicator_state.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <exception>

namespace shoal {
namespace {

template <std::size_t kWords>
using Words = std::array<std::uint64_t, kWords>;

template <std::size_t kWords>
Words<kWords> words_of(const char* text) {
  Words<kWords> words{};
  std::memcpy(words.data(), text, std::min(std::strlen(text), sizeof words));
  return words;
}

/// The names as words, so that a record is written by plain stores.
struct Names {
  static constexpr std::size_t kCollectives = 64;
  static constexpr std::size_t kTypes = std::size_t(c10::ScalarType::NumOptions);
  std::array<Words<FlightRecord::kNameWords>, kCollectives> collectives{};
  std::array<Words<1>, kTypes> types{};

  Names() {
    for (std::size_t i = 0; i < kCollectives; ++i)
      collectives[i] = words_of<FlightRecord::kNameWords>(name_of_any(std::uint32_t(i)));
    for (std::size_t i = 0; i < kTypes; ++i)
      if (c10::ScalarType(i) != c10::ScalarType::Undefined) types[i] = words_of<1>(c10::toString(c10::ScalarType(i)));
  }
};

const Names& names() {
  static const Names all;
  return all;
}

}  // namespace

FlightRecorder::FlightRecorder(GroupLayout& layout, int rank) : log_(layout.flight(rank)), fork_count_(fork_count()) {
  names();
  log_.pid.store(::getpid(), std::memory_order_relaxed);  // relaxed: the tag makes it count
  // release: after the pid.
  log_.tag.store(Session::current().self().word(), std::memory_order_release);
}

FlightRecorder::~FlightRecorder() {
  if (fork_count() == fork_count_) log_.left.store(1, std::memory_order_release);  // release: after all calls
}

void FlightRecorder::begin_as(int rank) noexcept {
  end(true);
  calls_ = 0;
  log_.calls.store(0, std::memory_order_release);  // release: what is found of older calls counts no longer
  log_.number.store(std::uint32_t(rank) + 1, std::memory_order_relaxed);  // relaxed: a number for people
}

void FlightRecorder::begin(Collective what, std::uint32_t type, std::uint64_t bytes) noexcept {
  if (whole_ || fork_count() != fork_count_) return;
  end(true);
  FlightRecord& record = log_.records[++calls_ % FlightLog::kRecords];
  // The orders are for the sake of those that copy the bytes: on the way to memory no store overtakes `call` of 0, or
  // the one that says which call it is. On x86 they are plain stores.
  record.call.store(0, std::memory_order_relaxed);  // relaxed: what follows is release
  const Names& all = names();
  const std::size_t name = std::min(std::size_t(what), Names::kCollectives - 1);
  for (std::size_t i = 0; i < FlightRecord::kNameWords; ++i)
    record.name[i].store(all.collectives[name][i], std::memory_order_release);                  // release: after call 0
  record.type.store(type < Names::kTypes ? all.types[type][0] : 0, std::memory_order_release);  // release: likewise
  record.bytes.store(bytes, std::memory_order_release);                                         // release: likewise
  record.end.store(0, std::memory_order_release);                                               // release: likewise
  record.start.store(now(), std::memory_order_release);                                         // release: likewise
  record.call.store(calls_, std::memory_order_release);              // release: after all of it
  log_.thread.store(activity::thread(), std::memory_order_relaxed);  // relaxed: a number for people
  log_.calls.store(calls_, std::memory_order_release);               // release: after the record
  open_ = &record;
}

Flight::Flight(FlightRecorder& recorder) noexcept : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {}

Flight::~Flight() { recorder_.end(std::uncaught_exceptions() > exceptions_); }

WholeFlight::WholeFlight(FlightRecorder& recorder, Collective what, std::uint32_t type, std::uint64_t bytes) noexcept
    : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {
  recorder.begin(what, type, bytes);
  recorder.whole_ = true;
}

WholeFlight::~WholeFlight() {
  recorder_.whole_ = false;
  recorder_.end(std::uncaught_exceptions() > exceptions_);
}

}  // namespace shoal
