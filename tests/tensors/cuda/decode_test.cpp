// What claims to be a tensor on a device, from another process.
#include <ATen/ATen.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/queue.h>
#include <shoal/tensors/codec.h>

#include <cstring>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;
using On = OnHostDouble;

namespace {

DeviceExportLayout good() {
  DeviceExportLayout layout{};
  layout.magic = DeviceExportLayout::kMagic;
  layout.version = DeviceExportLayout::kVersion;
  layout.device_type = std::uint8_t(On::kType);
  layout.base_bytes = 1 << 20;
  layout.offset = 512;
  layout.bytes = 1024;
  return layout;
}

void read(const DeviceExportLayout& layout, std::size_t more_bytes = 0) {
  Hold block = allocate_shared(sizeof layout + more_bytes);
  std::memcpy(block.data(), &layout, sizeof layout);
  (void)read_export(block);
}

/// Decodes a message of these bytes with holds on these blocks.
at::Tensor decode(std::vector<std::byte> bytes, std::span<const HoldRef> handles) {
  Decoder::Handles holds;
  for (const HoldRef& handle : handles) holds.push_back(Hold::share_of(handle.block));
  Decoder decoder(bytes, std::move(holds));
  at::Tensor tensor = shoal::decode<at::Tensor>(decoder);
  decoder.finish();
  return tensor;
}

}  // namespace

TEST_CASE("device ipc: an export whose fields cannot be is a DecodeError") {
  CHECK_NOTHROW(read(good()));
  auto bad = [](auto&& change, std::size_t more_bytes = 0) {
    DeviceExportLayout layout = good();
    change(layout);
    CHECK_THROWS_AS(read(layout, more_bytes), DecodeError);
  };
  bad([](auto& layout) { layout.magic = 0; });
  bad([](auto& layout) { ++layout.version; });
  bad([](auto& layout) { layout.device_type = 200; });
  bad([](auto& layout) { layout.offset = layout.base_bytes + 1; });
  bad([](auto& layout) { layout.bytes = layout.base_bytes; });
  bad([](auto& layout) { layout.offset = ~0ull; });
  bad([](auto& layout) { layout.bytes = ~0ull - 100; });
  bad([](auto& layout) {
    layout.base_bytes = layout.bytes = ~0ull;
    layout.offset = 0;
  });
  bad([](auto& layout) { layout.pieces = 1; });
  bad([](auto& layout) { layout.by = 3; });
  bad([](auto& layout) { layout.by = std::uint8_t(DeviceMemory::By::kDescriptor); });
  bad([](auto& layout) { layout.pieces = 1; }, 8);
  bad(
      [](auto& layout) {
        layout.pieces = 1;
        layout.by = std::uint8_t(DeviceMemory::By::kFabric);
      },
      8);
  auto in_pieces = [](std::uint32_t pieces) {
    return [pieces](auto& layout) {
      layout.pieces = pieces;
      layout.by = std::uint8_t(DeviceMemory::By::kDescriptor);
    };
  };
  bad(in_pieces(2), 8);
  bad(in_pieces(kMostPieces + 1), 8 * (kMostPieces + 1));
  bad([](auto&) {}, 8);
  CHECK_THROWS_AS(read_export(allocate_shared(10)), DecodeError);
}

TEST_CASE("device ipc: an export that was never made here, or by nobody that lives, is an error") {
  Hold block = allocate_shared(sizeof(DeviceExportLayout));
  DeviceExportLayout layout = good();
  auto decode_it = [&] {
    std::memcpy(block.data(), &layout, sizeof layout);
    std::memcpy(layout.uuid, device_memory(On::kType).uuid(0).bytes.data(), sizeof layout.uuid);
    std::memcpy(block.data(), &layout, sizeof layout);
    Decoder::Handles holds;
    holds.push_back(block.share());
    Decoder decoder({}, std::move(holds));
    (void)DeviceIpc::current().decode(decoder, {0, {}, {}});
  };
  layout.producer = Session::current().self().word();
  CHECK_THROWS_AS(decode_it(), DecodeError);
  layout.producer = ProcessTag(4000, 7).word();
  CHECK_THROWS_AS(decode_it(), PeerDied);
  layout.device_type = std::uint8_t(c10::kXPU);
  CHECK_THROWS_AS(decode_it(), DeviceError);
}

TEST_CASE("device ipc: bytes changed at random are an error or a tensor inside its storage, never a read outside") {
  {
    const at::Tensor tensor = at::arange(1000, at::kFloat).to(on<On>().device()).view({10, 100}).slice(1, 10, 90, 3);
    Encoder encoder;
    shoal::encode(encoder, tensor);
    const std::vector<std::byte> whole(encoder.bytes().begin(), encoder.bytes().end());
    CHECK(decode(whole, encoder.handles()).cpu().equal(tensor.cpu()));
    std::mt19937 random(7);
    int refused = 0, decoded = 0;
    for (int i = 0; i < 2'000 * test_scale(); ++i) {
      std::vector<std::byte> changed = whole;
      if (i % 3 == 0) changed.resize(random() % changed.size());
      for (unsigned changes = random() % 4; changes > 0 && !changed.empty(); --changes)
        changed[random() % changed.size()] = std::byte(random());
      try {
        at::Tensor got = decode(changed, encoder.handles());
        ++decoded;
        if (got.defined() && got.has_storage() && got.numel() != 0 && got.device().type() == On::kType) {
          std::int64_t last = got.storage_offset();
          for (std::int64_t d = 0; d < got.dim(); ++d) last += (got.size(d) - 1) * got.stride(d);
          REQUIRE(std::size_t(last + 1) * got.element_size() <= got.storage().nbytes());
        }
      } catch (const DecodeError&) {
        ++refused;
      }
    }
    CHECK(refused > 500);
    CHECK(decoded > 10);
  }
  CHECK(nothing_left<On>());
}
