#include <shoal/internal/tensors/cuda/imports.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/driver/captured_stream.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace shoal {
namespace {

PeerDied producer_died(ProcessTag producer, const std::string& device) {
  const ProcessRecord& process = Session::current().record(producer.slot());
  // The slot may be another process's by now.
  const bool same = (process.generation.load() & ProcessTag::kGenerationMask) == producer.generation();
  return PeerDied(fmt::format(
      "the process that a tensor on {} comes from{} has ended, and the device's memory with it: a process that sends "
      "tensors on a device has to live as long as they are used; for those that outlive it send tensor.cpu()",
      device, same ? fmt::format(" (pid {})", process.pid.load()) : ""));
}

void check_alive(ProcessTag producer, c10::Device device) {
  if (!Session::current().is_alive(producer)) throw producer_died(producer, device.str());
}

}  // namespace

/// An allocation of another process, or pieces of one, open in this one.
class Imports::OpenBase {
 public:
  OpenBase(DeviceMemory& memory, const DeviceExportLayout& layout, const DeviceHolds& holds, int device)
      : memory_(memory), device_(device), bytes_(layout.base_bytes), mapped_(layout.pieces != 0) {
    SHOAL_KILL_POINT("device.import.before_open");
    if (mapped_) {
      std::vector<Fd> descriptors;
      std::vector<DeviceMemory::Piece> pieces;
      std::uint64_t total = 0;
      for (const Hold& offer : holds.offers) {
        std::uint64_t bytes;
        std::memcpy(&bytes, holds.block.data() + sizeof layout + pieces.size() * sizeof bytes, sizeof bytes);
        if (__builtin_add_overflow(total, bytes, &total)) total = 0;
        descriptors.push_back(DescriptorOffers::fetch(offer));
        pieces.push_back({descriptors.back().get(), bytes});
      }
      if (total != bytes_) throw DecodeError("pieces of a device's segment that are not as long as the whole");
      start_ = memory_.map(pieces, device_);
    } else {
      MemoryHandle handle;
      std::memcpy(handle.bytes.data(), layout.handle, sizeof layout.handle);
      start_ = memory_.open(handle, bytes_, device_);
    }
    SHOAL_KILL_POINT("device.import.opened");
  }
  OpenBase(const OpenBase&) = delete;
  OpenBase& operator=(const OpenBase&) = delete;
  ~OpenBase() {
    if (mapped_)
      memory_.unmap(start_, bytes_, device_);
    else
      memory_.close(start_, device_);
    SHOAL_KILL_POINT("device.release.closed");
  }

  std::byte* start() const { return start_; }

  int users = 0;
  int looked_at_unused = 0;

 private:
  DeviceHolds kept_;  // last to go: whoever frees the memory has to find it closed
  DeviceMemory& memory_;
  int device_;
  std::size_t bytes_;
  bool mapped_;
  std::byte* start_ = nullptr;

 public:
  /// While nobody uses it: a hold on something in it.
  void keep(DeviceHolds&& holds) { kept_ = std::move(holds); }
};

struct Imports::Import {
  DeviceHolds holds;
  std::shared_ptr<OpenBase> base;
  ProcessTag producer;
  c10::Device device;
};

Imports::Imports() = default;
Imports::~Imports() = default;

std::shared_ptr<Imports::OpenBase> Imports::base_for(const DeviceExportLayout& layout, const DeviceHolds& holds,
                                                     c10::Device device) {
  std::shared_ptr<OpenBase>& base = bases_[{layout.producer, layout.base, layout.pieces, layout.base_bytes}];
  if (!base) {
    struct Undo {  // an entry without a base is nothing
      Imports& imports;
      ~Undo() {
        std::erase_if(imports.bases_, [](const auto& entry) { return !entry.second; });
      }
    } undo{*this};
    base = std::make_shared<OpenBase>(device_memory(device.type()), layout, holds, device.index());
    ++openings_;
  }
  return base;
}

c10::Storage Imports::open(DeviceHolds holds) {
  const DeviceExportLayout layout = read_export(holds.block);
  if (layout.pieces != holds.offers.size()) throw DecodeError("a device's export without its descriptors");
  DeviceMemory& memory = device_memory(c10::DeviceType(layout.device_type));
  DeviceUuid uuid;
  std::memcpy(uuid.bytes.data(), layout.uuid, sizeof layout.uuid);
  const c10::Device device(c10::DeviceType(layout.device_type), c10::DeviceIndex(memory.index_of(uuid)));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                       c10::SymInt(std::int64_t(layout.bytes)),
                                                       c10::DataPtr(nullptr, device), nullptr, /*resizable=*/false);
  if (layout.bytes == 0) return c10::Storage(std::move(storage));
  const ProcessTag producer = ProcessTag::from_word(layout.producer);
  shoal::check_alive(producer, device);
  auto import = std::make_unique<Import>(Import{std::move(holds), nullptr, producer, device});
  const std::uint64_t block = import->holds.block.block().value;

  std::vector<DeviceHolds> given_up;  // outside the lock
  std::lock_guard lock(mutex_);
  // Who receives faster than the collector looks clears up behind itself.
  for (int i = 0; i < 2 && !let_go_.empty() && is_done(let_go_.front()); ++i) {
    given_up.push_back(finish(*let_go_.front().import));
    let_go_.pop_front();
  }
  auto& known = by_block_.try_emplace(block, nullptr, c10::weak_intrusive_ptr<c10::StorageImpl>(storage)).first->second;
  if (known.first)
    if (auto alive = known.second.lock()) return c10::Storage(std::move(alive));
  try {
    import->base = base_for(layout, import->holds, device);
  } catch (...) {
    by_block_.erase(block);
    throw;
  }
  OpenBase& base = *import->base;
  if (base.users++ == 0) base.keep({});
  ++alive_;
  known = {import.get(), c10::weak_intrusive_ptr<c10::StorageImpl>(storage)};
  // From here on the storage's end is the import's, and nothing throws.
  std::byte* start = base.start() + layout.offset;
  storage->set_data_ptr_noswap(c10::DataPtr(start, import.release(), &Imports::release, device));
  return c10::Storage(std::move(storage));
}

bool Imports::share(const c10::Storage& storage, DeviceHolds& holds) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &Imports::release) return false;  // the deleter is the mark
  const auto& import = *static_cast<const Import*>(data.get_context());
  shoal::check_alive(import.producer, import.device);
  holds.block = import.holds.block.share();
  for (const Hold& offer : import.holds.offers) holds.offers.push_back(offer.share());
  return true;
}

void Imports::check_alive(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &Imports::release) return;
  const auto& import = *static_cast<const Import*>(data.get_context());
  shoal::check_alive(import.producer, import.device);
}

void Imports::release(void* import) {
  DeviceIpc::current().imports().let_go(std::unique_ptr<Import>(static_cast<Import*>(import)));
}

void Imports::let_go(std::unique_ptr<Import> import) noexcept {
  std::optional<LetGo> in_use;
  try {
    c10::impl::VirtualGuardImpl guard(import->device.type());
    const c10::Stream stream = guard.getStream(import->device);
    // A stream that is captured may be asked nothing: that would break the capture. So it is asked when that has ended.
    if (is_captured(stream)) {
      in_use = LetGo{nullptr, stream, nullptr};
    } else if (!guard.queryStream(stream)) {
      void* event = nullptr;
      guard.record(&event, stream, import->device.index(), c10::EventFlag::PYTORCH_DEFAULT);
      in_use = LetGo{nullptr, stream, event};
    }
  } catch (...) {
    // The device is broken or its driver shutting down: nothing uses the memory any more.
  }
  {
    DeviceHolds given_up;  // outside the lock
    std::lock_guard lock(mutex_);
    auto known = by_block_.find(import->holds.block.block().value);
    if (known != by_block_.end() && known->second.first == import.get()) by_block_.erase(known);
    if (in_use) {
      in_use->import = std::move(import);
      let_go_.push_back(std::move(*in_use));
    } else {
      given_up = finish(*import);
    }
  }
  DeviceIpc::current().wake();
}

/// Its memory is in use no more. Returns what is to be given up.
DeviceHolds Imports::finish(Import& import) {
  SHOAL_KILL_POINT("device.release.before_drop");
  --alive_;
  OpenBase& base = *import.base;
  if (--base.users != 0) return std::move(import.holds);
  base.looked_at_unused = 0;
  base.keep(std::move(import.holds));
  return {};
}

bool Imports::is_done(LetGo& each) {
  c10::impl::VirtualGuardImpl guard(each.import->device.type());
  // Recording an event and destroying one enter its device and then the current one: in the collector's thread that
  // would be device 0, and a context on it, though this process may not use that one at all.
  c10::DeviceGuard on_device(each.import->device);
  try {
    if (!each.event) {
      if (is_captured(each.stream)) return false;
      if (guard.queryStream(each.stream)) return true;
      guard.record(&each.event, each.stream, each.import->device.index(), c10::EventFlag::PYTORCH_DEFAULT);
    }
    if (!guard.queryEvent(each.event)) return false;
  } catch (...) {
    // As in let_go.
  }
  if (!each.event) return true;
  guard.destroyEvent(each.event, each.import->device.index());
  return true;
}

bool Imports::collect(Unused unused) {
  std::vector<DeviceHolds> given_up;  // outside the lock
  std::lock_guard lock(mutex_);
  std::erase_if(let_go_, [&](LetGo& each) {
    if (!is_done(each)) return false;
    given_up.push_back(finish(*each.import));
    return true;
  });
  // Under the lock: a base must not be opened again before it is closed.
  std::erase_if(bases_, [&](auto& entry) {
    OpenBase& base = *entry.second;
    return base.users == 0 && (unused == Unused::kClose || base.looked_at_unused++ >= 2);
  });
  return !let_go_.empty() || std::ranges::any_of(bases_, [](const auto& entry) { return entry.second->users == 0; });
}

Imports::Counts Imports::counts() const {
  std::lock_guard lock(mutex_);
  return {alive_, bases_.size(), openings_};
}

}  // namespace shoal
