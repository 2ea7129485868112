#include <shoal/internal/tensors/cuda/device_ipc.h>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/before_out_of_memory.h>
#include <shoal/internal/tensors/cuda/make_layout.h>
#include <shoal/internal/tensors/storage/storage.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kCollectEvery{100};
/// How long an allocator waits for others: for some of their looks.
constexpr std::chrono::milliseconds kWaitForOthers{500};

constinit OnePerProcess<DeviceIpc> the_device_ipc;

[[gnu::init_priority(101)]] const AtFork at_fork({
    .in_child = []() noexcept { the_device_ipc.forget(); },
});

/// Per handle of a message, so that tensors that share a storage go on sharing it.
const char kStorages = 0;

/// Memory of the heap that is about to be a tensor's.
void before_memory(const Hold& block) {
  if (DeviceIpc* ipc = the_device_ipc.if_there()) ipc->pinned().make_way(block);
}

}  // namespace

DeviceExportLayout read_export(const Hold& block) {
  DeviceExportLayout layout{};
  if (block.size() < sizeof layout) throw DecodeError("this block of shared memory is no tensor's on a device");
  std::memcpy(&layout, block.data(), sizeof layout);
  if (layout.magic != DeviceExportLayout::kMagic || layout.version != DeviceExportLayout::kVersion)
    throw DecodeError("this block of shared memory is no tensor's on a device, or of another version");
  if (layout.device_type >= std::uint8_t(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES))
    throw DecodeError(fmt::format("a tensor on an unknown kind of device ({})", layout.device_type));
  if (layout.by > std::uint8_t(DeviceMemory::By::kFabric) || (layout.pieces != 0) != (layout.by != 0))
    throw DecodeError(fmt::format("a device's export that is shared in an unknown way ({})", layout.by));
  if (layout.pieces > kMostPieces || block.size() != layout.block_bytes())
    throw DecodeError("a device's export whose pieces are not all there");
  if (layout.offset > layout.base_bytes || layout.bytes > layout.base_bytes - layout.offset ||
      layout.base_bytes > std::uint64_t(INT64_MAX))
    throw DecodeError("a storage on a device that reaches outside its allocation");
  return layout;
}

DeviceIpc& DeviceIpc::current() { return the_device_ipc.get(); }

DeviceIpc::Handles DeviceIpc::encode(Encoder& message, const c10::Storage& storage) {
  const c10::Device device = storage.device();
  Handles handles;
  if (storage.nbytes() == 0) {
    Hold block = allocate_shared(sizeof(DeviceExportLayout));
    make_layout<DeviceExportLayout>(block.data(), device);
    handles.block = message.add(std::move(block));
    return handles;
  }
  use(device.type());
  std::optional<Imports::Shared> imported = imports_.share(storage);
  DeviceHolds holds = imported ? std::move(imported->holds) : exports_.share(storage);
  wake();
  handles.block = message.add(std::move(holds.block));
  for (Hold& offer : holds.offers) handles.offers.push_back(message.add(std::move(offer)));
  const SentWord own = sent_.write(message, device);
  if (own.page != SentWord::kNone) handles.words.push_back(own);
  if (imported)
    for (ReceivedWords::Unreached& each : received_.unreached(device, imported->awaited)) {
      const std::uint32_t page = message.add(std::move(each.page));
      if (page != own.page || each.index != own.index) handles.words.push_back({page, each.index, each.value});
    }
  SHOAL_KILL_POINT("device.export.in_message");
  return handles;
}

c10::Storage DeviceIpc::decode(Decoder& message, const Handles& handles) {
  std::shared_ptr<void>& made = message.object(handles.block, &kStorages);
  if (!made) {
    const Hold& block = message.handle(handles.block);
    const DeviceExportLayout layout = read_export(block);
    const auto type = c10::DeviceType(layout.device_type);
    (void)device_memory(type);  // throws if there is no such thing here
    at::globalContext().lazyInitDevice(type);
    use(type);
    c10::Storage storage;
    if (layout.bytes != 0 && ProcessTag::from_word(layout.producer) == Session::current().self()) {
      storage = exports_.find(block.block());
      if (!storage) throw DecodeError("a tensor of this process that it never sent");
    } else {
      DeviceHolds holds{message.take_handle(handles.block), {}};
      for (std::uint32_t offer : handles.offers) holds.offers.push_back(message.handle(offer).share());
      storage = imports_.open(std::move(holds));
    }
    made = std::make_shared<c10::Storage>(std::move(storage));
  }
  c10::Storage storage = *static_cast<c10::Storage*>(made.get());
  for (const SentWord& word : handles.words) {
    imports_.note_awaited(storage, received_.wait(message.handle(word.page), word, storage.device()));
  }
  return storage;
}

bool DeviceIpc::is_export(BlockOffset block) {
  DeviceIpc* ipc = the_device_ipc.if_there();
  return ipc && (ipc->imports_.has(block) || ipc->exports_.find(block));
}

DeviceIpc::DeviceIpc() {
  call_before_memory(&before_memory);
  (void)is_called_before_out_of_memory();  // so that a program that is linked with an archive has it
  start_service_thread("shoal-device", [this] { run(); });
}

void DeviceIpc::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return work_; });
      work_ = false;
    }
    while (look_through()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kCollectEvery, [] { return false; });  // nobody waits for it: a wake-up says nothing new
    }
  }
}

bool DeviceIpc::look_through() try {
  for (std::size_t type = 0; type < kDeviceTypes; ++type)
    if (used_[type].exchange(false)) device_memory(c10::DeviceType(type)).enter_own_thread();
  HolderCheck holders;
  bool again = imports_.collect(Imports::Clock::now());
  again |= exports_.collect(holders);
  again |= pinned_.collect(holders, PinnedRanges::Clock::now());
  received_.collect(ReceivedWords::Which::kDead);
  holders.reclaim_dead();
  return again;
} catch (const std::exception&) {
  return true;  // nobody to tell: what is left is looked at again, and ipc_collect() throws it at its caller
}

void DeviceIpc::collect() {
  HolderCheck holders;
  imports_.collect(Imports::Clock::time_point::max());
  exports_.collect(holders);
  pinned_.collect(holders, PinnedRanges::Clock::time_point::max());
  holders.reclaim_dead();
  if (HolderCheck again; exports_.collect(again)) wake();  // what the dead had
  exports_.want_back();
  received_.collect(ReceivedWords::Which::kUnused);
  sent_.collect([this](BlockOffset page) { return received_.has(page); });
}

bool DeviceIpc::give_back_for_allocator() noexcept {
  DeviceIpc* ipc = the_device_ipc.if_there();
  if (!ipc) return false;
  try {
    ipc->exports_.want_back();
    bool freed = ipc->exports_.collect_for_allocator();
    const auto until = std::chrono::steady_clock::now() + kWaitForOthers;
    while (ipc->exports_.others_have_much()) {
      if (std::chrono::steady_clock::now() >= until) {
        ipc->exports_.note_waited();
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      freed |= ipc->exports_.collect_for_allocator();
    }
    return freed;
  } catch (const std::exception&) {
    return false;  // the allocator goes on without
  }
}

void DeviceIpc::wake() noexcept {
  std::lock_guard lock(mutex_);
  if (std::exchange(work_, true)) return;
  changed_.notify_one();
}

}  // namespace shoal
