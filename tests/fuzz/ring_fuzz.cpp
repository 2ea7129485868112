// Fuzz target: the cells of a ring and the blocks of its messages hold any bytes. Getting from it must end in a message
// or in a DecodeError, never outside the ring, and give back what the messages held.
#include <shoal/internal/ipc/ring/layout.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/session.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace shoal;

namespace {

struct Input {
  const std::uint8_t* data;
  std::size_t size;

  std::uint8_t byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
  /// Changes some bytes of a place: each by a position and a value.
  void scribble(std::byte* place, std::size_t bytes) {
    for (int count = byte() % 32; count > 0; --count) {
      std::size_t at = byte();
      place[(at | std::size_t(byte()) << 8) % bytes] = std::byte(byte());
    }
  }
};

/// The holds of the messages that were put. What the scribbling made nobody find any more is given up at the end: all
/// else must have been given up by then.
struct Given {
  std::vector<HoldRef> refs;

  ~Given() {
    Session& session = Session::current();
    for (const HoldRef& ref : refs)
      if (session.heap().is_hold(ref, session.self().transit_word())) Hold::from_transit(ref).release();
    static const std::size_t baseline = heap_bytes_in_use();
    static int runs = 0;
    if (++runs % 4096 == 0 && heap_bytes_in_use() != baseline) {
      std::fprintf(stderr, "%zu bytes of the heap are in use, %zu were\n", heap_bytes_in_use(), baseline);
      std::abort();
    }
  }
};

constexpr std::uint32_t kCapacity = 3;
constexpr std::uint64_t kSchema = 77;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  Given given;
  Ring ring = Ring::create(kCapacity, kSchema, input.byte() % 2 * 4096);
  auto* layout = reinterpret_cast<RingLayout*>(ring.hold().data());
  for (std::uint32_t i = 0; i < kCapacity; ++i) {
    Encoder message;
    std::uint8_t kind = input.byte();
    if (kind & 1) encode(message, std::string(kind & 2 ? 500 : 20, 'x'));
    for (int handles = kind >> 2 & 3; handles > 0; --handles) message.add(allocate_shared(64));
    given.refs.insert(given.refs.end(), message.handles().begin(), message.handles().end());
    if (ring.put(message, Deadline::now()) != RingStatus::kDone) break;
  }
  for (std::uint32_t i = 0; i < kCapacity; ++i) {
    RingCell& cell = layout->cells()[i];
    // The block first, while the cell says where it is.
    if (cell.flags & RingCell::kInBlock) {
      HoldRef ref;
      std::memcpy(&ref, cell.contents, sizeof ref);
      Hold block = Hold::from_transit(ref);
      input.scribble(block.data(), block.size());
      const std::size_t first_handle = Encoder::handles_at(cell.size);
      const bool room = first_handle + sizeof ref <= block.size();
      std::byte* place = block.data() + first_handle;
      ref = std::move(block).into_transit();
      given.refs.push_back(ref);
      std::memcpy(cell.contents, &ref, sizeof ref);
      // Its first handle is the hold on the block itself: hardly to be hit upon by chance.
      if (room && input.byte() % 4 == 1) std::memcpy(place, &ref, sizeof ref);
    }
    // All but the state: that is the algorithm's, and no message's.
    input.scribble(reinterpret_cast<std::byte*>(&cell.size), sizeof(RingCell) - offsetof(RingCell, size));
  }
  for (std::uint32_t i = 0; i < kCapacity; ++i) {
    try {
      Received message;
      if (ring.get(message, Deadline::now()) != RingStatus::kDone) break;
      Decoder decoder = std::move(message).decoder();
      (void)decode<std::string>(decoder);
      for (std::uint32_t handle = 0; handle < 4; ++handle) (void)decoder.take_handle(handle);
    } catch (const DecodeError&) {
    }
  }
  return 0;
}
