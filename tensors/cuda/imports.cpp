#include <shoal/internal/tensors/cuda/imports.h>

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

namespace shoal {
namespace {

PeerDied producer_died(ProcessTag producer, const std::string& device) {
  const ProcessRecord& process = SessionCore::current().record(producer.slot());
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

/// Whether the process that the export comes from has asked for its memory.
bool is_wanted_back(const Hold& exported) {
  auto* layout = reinterpret_cast<DeviceExportLayout*>(exported.data());
  return std::atomic_ref(layout->wanted_back).load(std::memory_order_relaxed) != 0;  // relaxed: a hint
}

}  // namespace

/// An allocation of another process, or pieces of one, open in this one. Made and closed outside the lock; whoever
/// needs it meanwhile waits.
struct Imports::Base {
  enum class State { kOpening, kOpen, kClosing };
  State state = State::kOpening;
  DeviceMemory* memory = nullptr;
  c10::DeviceIndex device = 0;
  std::size_t bytes = 0;
  bool mapped = false;
  std::byte* start = nullptr;

  int users = 0;
  Clock::time_point idle_since{};
  DeviceHolds kept{};  // while nobody uses it: a hold on something in it
  std::size_t kept_bytes = 0;

  void open(const DeviceExportLayout& layout, const DeviceHolds& holds);
  void close() noexcept;
};

void Imports::Base::open(const DeviceExportLayout& layout, const DeviceHolds& holds) {
  SHOAL_KILL_POINT("device.import.before_open");
  bytes = layout.base_bytes;
  mapped = layout.pieces != 0;
  if (mapped) {
    std::vector<Fd> descriptors;
    std::vector<DeviceMemory::Piece> pieces;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < layout.pieces; ++i) {
      DeviceMemory::Piece piece{-1, 0};
      std::memcpy(&piece.bytes, holds.block.data() + sizeof layout + i * sizeof piece.bytes, sizeof piece.bytes);
      if (__builtin_add_overflow(total, piece.bytes, &total)) total = 0;
      if (layout.is_by_fabric()) {
        std::memcpy(&piece.handle, holds.block.data() + layout.handles_at() + i * sizeof piece.handle,
                    sizeof piece.handle);
      } else {
        descriptors.push_back(DescriptorOffers::fetch(holds.offers[i]));
        piece.descriptor = descriptors.back().get();
      }
      pieces.push_back(piece);
    }
    if (total != bytes) throw DecodeError("pieces of a device's segment that are not as long as the whole");
    start = memory->map(pieces, device);
  } else {
    MemoryHandle handle;
    std::memcpy(handle.bytes.data(), layout.handle, sizeof layout.handle);
    start = memory->open(handle, bytes, device);
  }
  SHOAL_KILL_POINT("device.import.opened");
}

void Imports::Base::close() noexcept {
  if (mapped)
    memory->unmap(start, bytes, device);
  else
    memory->close(start, device);
  SHOAL_KILL_POINT("device.release.closed");
}

struct Imports::Import {
  Import(const Imports& of, DeviceHolds given, std::size_t size, ProcessTag from, c10::Device on)
      : imports(&of), holds(std::move(given)), bytes(size), producer(from), device(on) {}

  const Imports* imports;  // a forked child has others, and copies of these
  DeviceHolds holds;
  std::size_t bytes;
  Base* base = nullptr;
  ProcessTag producer;
  c10::Device device;
  std::vector<ReceivedWords::Awaited> awaited{};  // under the lock

  /// Null for a storage that is none of these: the deleter is the mark.
  static Import* of(const c10::Storage& storage) {
    const c10::DataPtr& data = storage.data_ptr();
    return data.get_deleter() == &Imports::release ? static_cast<Import*>(data.get_context()) : nullptr;
  }
};

Imports::Imports() = default;
Imports::~Imports() = default;

/// The base if it is open. Otherwise null, after it was opened, or somebody else had opened or closed it: then what was
/// known before is to be looked at again.
Imports::Base* Imports::open_base(Lock& lock, const BaseKey& key, const DeviceExportLayout& layout,
                                  const DeviceHolds& holds, c10::Device device) {
  if (auto known = bases_.find(key); known != bases_.end()) {
    if (known->second->state == Base::State::kOpen) return known->second.get();
    changed_.wait(lock);
    return nullptr;
  }
  auto at = bases_.emplace(key, std::make_unique<Base>()).first;
  Base& base = *at->second;
  lock.unlock();
  struct Undo {
    Lock& lock;
    Imports& imports;
    Bases::iterator at;
    bool opened = false;
    ~Undo() {
      lock.lock();
      if (opened) {
        at->second->state = Base::State::kOpen;
        at->second->idle_since = Clock::now();
        ++imports.openings_;
      } else {
        imports.bases_.erase(at);
      }
      imports.changed_.notify_all();
    }
  } undo{lock, *this, at};
  base.memory = &device_memory(device.type());
  base.device = device.index();
  try {
    base.open(layout, holds);
  } catch (const DeviceError&) {
    shoal::check_alive(ProcessTag::from_word(layout.producer), device);  // it may have died since it was asked last
    throw;
  }
  undo.opened = true;
  return nullptr;
}

/// Closes these bases, outside the lock, and forgets them. What was kept for them is the caller's to give up.
void Imports::close(Lock& lock, const std::vector<Bases::iterator>& closing, std::vector<DeviceHolds>& given_up) {
  if (closing.empty()) return;
  for (auto at : closing) at->second->state = Base::State::kClosing;
  lock.unlock();
  for (auto at : closing) at->second->close();
  lock.lock();
  for (auto at : closing) {
    given_up.push_back(std::move(at->second->kept));
    bases_.erase(at);
  }
  changed_.notify_all();
}

c10::Storage Imports::open(DeviceHolds holds) {
  const DeviceExportLayout layout = read_export(holds.block);
  if ((layout.is_by_fabric() ? 0 : layout.pieces) != holds.offers.size())
    throw DecodeError("a device's export without its descriptors");
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
  auto import = std::make_unique<Import>(*this, std::move(holds), layout.bytes, producer, device);
  const std::uint64_t block = import->holds.block.block().value;
  const BaseKey key{layout.producer, layout.base, layout.pieces, layout.base_bytes};

  std::vector<DeviceHolds> given_up;  // outside the lock
  Lock lock(mutex_);
  finish_some(lock, given_up);
  Base* base = nullptr;
  while (!base) {
    if (auto known = by_block_.find(block); known != by_block_.end())
      if (auto alive = known->second.second.lock()) return c10::Storage(std::move(alive));
    base = open_base(lock, key, layout, import->holds, device);
  }
  auto& known = by_block_.try_emplace(block, nullptr, c10::weak_intrusive_ptr<c10::StorageImpl>(storage)).first->second;
  given_up.reserve(given_up.size() + 1);
  known = {import.get(), c10::weak_intrusive_ptr<c10::StorageImpl>(storage)};
  // From here on the storage's end is the import's, and nothing throws.
  import->base = base;
  if (base->users++ == 0) given_up.push_back(std::exchange(base->kept, {}));
  ++alive_;
  std::byte* start = base->start + layout.offset;
  storage->set_data_ptr_noswap(c10::DataPtr(start, import.release(), &Imports::release, device));
  return c10::Storage(std::move(storage));
}

std::optional<Imports::Shared> Imports::share(const c10::Storage& storage) {
  Import* import = Import::of(storage);
  if (!import) return std::nullopt;
  shoal::check_alive(import->producer, import->device);
  Shared result{{import->holds.block.share(), {}}, {}};
  for (const Hold& offer : import->holds.offers) result.holds.offers.push_back(offer.share());
  if (import->imports != this) return result;  // a parent's streams are none of this process's
  std::lock_guard lock(mutex_);
  std::erase_if(import->awaited, [](const auto& each) { return each.is_there(); });
  result.awaited = import->awaited;
  return result;
}

void Imports::note_awaited(const c10::Storage& storage, ReceivedWords::Awaited awaited) {
  Import* import = Import::of(storage);
  if (!import || import->imports != this || awaited.is_there()) return;
  std::lock_guard lock(mutex_);
  std::erase_if(import->awaited, [](const auto& each) { return each.is_there(); });
  auto known = std::ranges::find_if(import->awaited, [&](const auto& each) {
    return each.index == awaited.index && !each.page.owner_before(awaited.page) &&
           !awaited.page.owner_before(each.page);
  });
  if (known != import->awaited.end())
    known->value = std::max(known->value, awaited.value);
  else
    import->awaited.push_back(std::move(awaited));
}

void Imports::check_alive(const c10::Storage& storage) {
  if (const Import* import = Import::of(storage)) shoal::check_alive(import->producer, import->device);
}

void Imports::release(void* import) {
  DeviceIpc::current().imports().let_go(std::unique_ptr<Import>(static_cast<Import*>(import)));
}

void Imports::let_go(std::unique_ptr<Import> import) noexcept {
  c10::Stream stream(c10::Stream::DEFAULT, import->device);
  try {
    stream = c10::impl::VirtualGuardImpl(import->device.type()).getStream(import->device);
  } catch (...) {
    // The driver is shutting down, and answers no question either.
  }
  LetGo each{std::move(import), StreamMark(stream)};
  const bool done = each.mark.is_passed();
  {
    DeviceHolds given_up;  // outside the lock
    std::lock_guard lock(mutex_);
    auto known = by_block_.find(each.import->holds.block.block().value);
    if (known != by_block_.end() && known->second.first == each.import.get()) by_block_.erase(known);
    if (done)
      given_up = finish(*each.import);
    else
      let_go_.push_back(std::move(each));
  }
  DeviceIpc::current().wake();
}

/// Its memory is in use no more. Returns what is to be given up.
DeviceHolds Imports::finish(Import& import) {
  SHOAL_KILL_POINT("device.release.before_drop");
  --alive_;
  Base& base = *import.base;
  if (--base.users != 0) return std::move(import.holds);
  base.idle_since = Clock::now();
  base.kept_bytes = import.bytes;
  base.kept = std::move(import.holds);
  return {};
}

/// Who receives faster than the collector looks clears up behind itself.
void Imports::finish_some(Lock& lock, std::vector<DeviceHolds>& given_up) {
  for (int i = 0; i < 2 && !let_go_.empty(); ++i) {
    LetGo each = std::move(let_go_.front());
    let_go_.pop_front();
    lock.unlock();
    const bool done = each.mark.is_passed();
    lock.lock();
    if (!done) return let_go_.push_front(std::move(each));
    given_up.push_back(finish(*each.import));
  }
}

std::vector<Imports::Bases::iterator> Imports::to_close(Clock::time_point now) {
  std::vector<Bases::iterator> idle, closing;
  for (auto at = bases_.begin(); at != bases_.end(); ++at)
    if (at->second->state == Base::State::kOpen && at->second->users == 0) idle.push_back(at);
  std::ranges::sort(idle, {}, [](auto at) { return at->second->idle_since; });
  std::size_t count = idle.size(), bytes = 0;
  for (auto at : idle) bytes += at->second->kept_bytes;
  for (auto at : idle) {
    const Base& base = *at->second;
    const bool is_due = now == Clock::time_point::max() || now - base.idle_since >= kIdle || !base.kept.block ||
                        is_wanted_back(base.kept.block) ||
                        !Session::current().is_alive(ProcessTag::from_word(std::get<0>(at->first)));
    if (!is_due && count <= kMostIdle && bytes <= kMostIdleBytes) continue;
    closing.push_back(at);
    --count;
    bytes -= base.kept_bytes;
  }
  return closing;
}

bool Imports::collect(Clock::time_point now) {
  std::lock_guard one_at_a_time(collecting_);
  std::vector<DeviceHolds> given_up;  // outside the lock
  Lock lock(mutex_);
  std::deque<LetGo> looked_at = std::exchange(let_go_, {});
  lock.unlock();
  std::deque<LetGo> done;
  std::erase_if(looked_at, [&](LetGo& each) {
    if (!each.mark.is_passed()) return false;
    done.push_back(std::move(each));
    return true;
  });
  lock.lock();
  given_up.reserve(given_up.size() + done.size());
  for (LetGo& each : done) given_up.push_back(finish(*each.import));
  let_go_.insert(let_go_.begin(), std::move_iterator(looked_at.begin()), std::move_iterator(looked_at.end()));
  close(lock, to_close(now), given_up);
  return !let_go_.empty() || std::ranges::any_of(bases_, [](const auto& entry) { return entry.second->users == 0; });
}

bool Imports::has(BlockOffset block) const {
  std::lock_guard lock(mutex_);
  return by_block_.contains(block.value);
}

Imports::Counts Imports::counts() const {
  std::lock_guard lock(mutex_);
  return {alive_, bases_.size(), openings_};
}

}  // namespace shoal
