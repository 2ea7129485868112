// Fuzz target: every byte of a message is hostile. The first byte says which type is to be decoded, the second how many
// handles of which kind travel with it. What is decoded must encode to a message that means the same.
#include <shoal/ipc/array.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/ipc/value.h>

#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz.h"

using namespace shoal;

namespace {

enum class Color : std::int16_t { kRed = -3, kBlue = 400 };
struct Empty {
  auto operator<=>(const Empty&) const = default;
};
struct Point {
  std::int32_t x, y;
  std::optional<std::string> label;
};
struct Tree {
  int value;
  std::vector<std::unique_ptr<Tree>> children;
};
struct Menu {
  std::string title;
  std::map<int, Menu> entries;
};
struct List {
  bool last;
  std::unique_ptr<List> next;
};
struct Packet {
  char name[16];
  Point points[2][2];
  bool flags[3];
};
struct Mixed {
  double loss;
  Color color;
  std::variant<std::monostate, int, std::string, std::vector<Point>> value;
  std::array<float, 3> numbers;
  std::tuple<std::chrono::nanoseconds, std::filesystem::path, std::complex<float>> tuple;
};
struct Handles {
  std::string name;
  std::optional<Queue<std::string>> queue;
  std::vector<Lock> locks;
  std::variant<Empty, Barrier, SharedBytes, RLock, Semaphore, Event, Condition, Value<int>, Array<float>> other;
  std::vector<std::unique_ptr<Handles>> more;
};

/// Blocks of several kinds; also a ring of another schema, and bytes that are none of all.
Decoder::Handles make_handles(std::uint8_t which) {
  static Queue<std::string> queue(2);
  static Queue<int> other_queue(2);
  static Lock lock;
  static Barrier barrier(2);
  static SharedBytes bytes(100);
  static Pipe<int> pipe;
  static Value<int> value(3);
  static Array<float> array(5);
  Encoder encoder;
  if (which & 1) encode(encoder, queue);
  if (which & 2) encode(encoder, lock);
  if (which & 4) encode(encoder, barrier);
  if (which & 8) encode(encoder, bytes);
  if (which & 16) encode(encoder, other_queue);
  if (which & 32) encode(encoder, value);
  if (which & 64) encode(encoder, array);
  if (which & 128) encode(encoder, pipe.first);
  Decoder::Handles handles;
  for (const HoldRef& ref : encoder.handles()) handles.push_back(Hold::from_transit(ref));
  encoder.sent();
  return handles;
}

template <class T>
std::vector<std::byte> encoded(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  return {encoder.bytes().begin(), encoder.bytes().end()};
}

/// What was decoded encodes and decodes again to the same bytes. Not for handles, whose numbers may change.
template <class T, bool kSame = true>
void decode_as(std::span<const std::byte> input, Decoder::Handles&& handles) {
  Decoder decoder(input, std::move(handles));
  T value = decode<T>(decoder);
  if constexpr (kSame) {
    auto once = encoded(value);
    Decoder again(once, {});
    T copy = decode<T>(again);
    again.finish();
    if (encoded(copy) != once) {
      std::fprintf(stderr, "a decoded value does not encode to what it decodes from\n");
      std::abort();
    }
  } else {
    encoded(value);
  }
  decoder.finish();
}

using Target = void (*)(std::span<const std::byte>, Decoder::Handles&&);
constexpr Target kTargets[] = {
    decode_as<Mixed>,
    decode_as<Tree>,
    decode_as<Menu>,
    decode_as<List>,
    decode_as<Packet>,
    decode_as<std::map<std::string, std::vector<Point>>>,
    decode_as<std::vector<std::vector<Empty>>>,
    decode_as<std::pair<std::vector<bool>, std::bitset<13>>>,
    decode_as<std::tuple<std::u16string, std::wstring, std::u8string>>,
    decode_as<std::multimap<Color, std::set<std::int8_t>>>,
    decode_as<std::unordered_map<int, std::unordered_set<std::string>>, false>,  // equal values of another order
    decode_as<std::variant<std::list<double>, std::deque<std::optional<bool>>, std::unique_ptr<Point>>>,
    decode_as<Handles, false>,
    decode_as<std::vector<Connection<int>>, false>,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  auto input = std::as_bytes(std::span(data, size));
  try {
    kTargets[data[0] % std::size(kTargets)](input.subspan(2), make_handles(data[1]));
  } catch (const DecodeError&) {
  } catch (const std::invalid_argument&) {  // a barrier's parties, say: the value, not the message
  }
  return 0;
}
