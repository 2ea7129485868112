#include "tests/support/host_double/memory.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "tests/support/host_double/captures.h"
#include "tests/support/host_double/driver_state.h"
#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/out_of_memory.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {
namespace {

class OutOfMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

struct OpaqueMemory {
  std::uint64_t magic;
  std::int32_t process, file;
  std::uint64_t inode, offset, bytes, allocated;
};
constexpr std::uint64_t kMemoryMagic = 0x79726f6d656d;  // "memory"
constexpr std::int64_t kFreeing = -1;                   // a stream that nobody else has

Fd make_file(std::size_t bytes) {
  Fd file(::memfd_create("double-memory", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), off_t(bytes)) != 0) throw DeviceError("the double is out of memory");
  return file;
}

std::byte* map_file(void* where, std::size_t bytes, int file) {
  void* mapped = ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), file, 0);
  if (mapped == MAP_FAILED) throw DeviceError("the double cannot map memory");
  return static_cast<std::byte*>(mapped);
}

std::byte* reserve(std::size_t bytes) {
  void* reserved = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw DeviceError("the double cannot reserve addresses");
  return static_cast<std::byte*>(reserved);
}

ino_t inode_of(int file) {
  struct stat status{};
  ::fstat(file, &status);
  return status.st_ino;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::atomic<int> waiting{0};

/// As the driver does before it takes memory away from a device.
void wait_for_device(int device) noexcept {
  ++waiting;
  if (is_working() && Streams::exist()) Streams::current().synchronize_device(device);
  --waiting;
}

[[noreturn]] void violation(const char* what) {
  std::fprintf(stderr, "host double: %s\n", what);
  std::abort();
}

Fd open_file(const MemoryHandle& handle) {
  OpaqueMemory opaque;
  std::memcpy(&opaque, handle.bytes.data(), sizeof opaque);
  if (opaque.magic != kMemoryMagic) throw DeviceError("the double: an invalid memory handle");
  const std::string path = "/proc/" + std::to_string(opaque.process) + "/fd/" + std::to_string(opaque.file);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file || inode_of(file.get()) != opaque.inode)
    throw DeviceError("the double: the memory's process or the memory is gone");
  return file;
}

}  // namespace

Memory& Memory::current() {
  static auto* memory = new Memory;
  return *memory;
}

int Memory::device_count() {
  std::lock_guard lock(mutex_);
  return visible_.empty() ? kPhysicalDevices : int(visible_.size());
}

void Memory::set_visible(std::vector<int> devices) {
  std::lock_guard lock(mutex_);
  visible_ = std::move(devices);
}

DeviceUuid Memory::uuid(int device) {
  std::lock_guard lock(mutex_);
  DeviceUuid uuid;
  std::memcpy(uuid.bytes.data(), "host double", 11);
  uuid.bytes[15] = std::uint8_t(visible_.empty() ? device : visible_.at(std::size_t(device)));
  return uuid;
}

// ---------------------------------------------------------------- allocations and storages

std::size_t Memory::bytes_in_use() const {
  std::size_t sum = 0;
  for (const Allocation& each : allocations_) sum += each.bytes;
  return sum;
}

/// All devices have one memory.
std::size_t Memory::free_bytes(int) {
  std::lock_guard lock(mutex_);
  return most_bytes_ - std::min<std::size_t>(bytes_in_use(), most_bytes_);
}

Memory::Allocation& Memory::make(std::size_t bytes, int device) {
  Allocation made{device, nullptr, 0};
  if (expandable_) {
    made.start = reserve(kReserved);
  } else {
    made.bytes = round_up(bytes, kPiece);
    if (bytes_in_use() + made.bytes > most_bytes_) throw OutOfMemory("the double is out of memory");
    made.files.push_back(make_file(kPage + made.bytes));
    std::byte* mapped = map_file(nullptr, kPage + made.bytes, made.files.front().get());
    made.control = reinterpret_cast<Control*>(mapped);
    made.start = mapped + kPage;
  }
  return allocations_.emplace_back(std::move(made));
}

void Memory::grow(Allocation& allocation, std::size_t bytes) {
  while (allocation.bytes < bytes) {
    if (allocation.bytes + kPiece > kReserved) throw DeviceError("the double's expandable segment is full");
    allocation.files.push_back(make_file(kPiece));
    map_file(allocation.start + allocation.bytes, kPiece, allocation.files.back().get());
    allocation.bytes += kPiece;
  }
}

std::byte* Memory::allocate(std::size_t bytes, int device) {
  if (bytes == 0) return nullptr;
  const std::int64_t stream =
      c10::impl::VirtualGuardImpl(kType).getStream(c10::Device(kType, c10::DeviceIndex(device))).id();
  std::lock_guard allocating(allocating_.at(std::size_t(device)));
  for (int tries = 0;; ++tries) try {
      return take(bytes, device, stream);
    } catch (const OutOfMemory&) {
      if (tries == 1 || !call_before_out_of_memory()) throw;
    }
}

std::byte* Memory::take(std::size_t bytes, int device, std::int64_t stream) {
  std::lock_guard lock(mutex_);
  const std::size_t size = round_up(bytes, kAlignment);
  for (Allocation& each : allocations_) {
    auto unused = each.unused.find({stream, size});
    if (each.device != device || (each.control == nullptr) != expandable_ || unused == each.unused.end()) continue;
    std::byte* storage = unused->second.back();
    unused->second.pop_back();
    if (unused->second.empty()) each.unused.erase(unused);
    each.live.emplace(storage, Allocation::Block{bytes, stream});
    ++each.storages;
    return storage;
  }
  auto fits = [&](const Allocation& each) {
    return each.device == device && (each.control == nullptr) == expandable_ &&
           (expandable_ || each.bytes - each.used >= size);
  };
  auto found = std::find_if(allocations_.begin(), allocations_.end(), fits);
  Allocation& allocation = found != allocations_.end() ? *found : make(size, device);
  if (!allocation.control) grow(allocation, allocation.used + size);
  std::byte* storage = allocation.start + allocation.used;
  allocation.used += size;
  allocation.live.emplace(storage, Allocation::Block{bytes, stream});
  ++allocation.storages;
  return storage;
}

Memory::Allocation& Memory::find(const void* address) {
  for (Allocation& each : allocations_)
    if (each.start <= address && address < each.start + each.bytes) return each;
  throw DeviceError("the double: an address in none of its allocations");
}

int Memory::device_of(const void* address) {
  std::lock_guard lock(mutex_);
  return find(address).device;
}

void Memory::free(std::byte* storage) noexcept {
  if (!storage) return;
  std::lock_guard allocating(allocating_.at(std::size_t(device_of(storage))));
  std::lock_guard lock(mutex_);
  Allocation& allocation = find(storage);
  const Allocation::Block block = allocation.live.at(storage);
  allocation.live.erase(storage);
  auto overwrite = [this, &allocation, storage, bytes = block.bytes] {
    std::memset(storage, 0xcd, bytes);
    std::lock_guard lock(mutex_);
    if (--allocation.storages != 0) return;
    allocation.used = 0;
    allocation.unused.clear();
  };
  if (block.other_streams.empty()) {
    allocation.unused[{block.stream, round_up(block.bytes, kAlignment)}].push_back(storage);
    Streams::current().enqueue({allocation.device, block.stream}, std::move(overwrite));
    return;
  }
  // Behind all of its streams, and in the way of none: on one of its own.
  const auto streams_before = std::make_shared<std::atomic<int>>(int(block.other_streams.size()) + 1);
  auto pass = [streams_before] { --*streams_before; };
  Streams::current().enqueue({allocation.device, block.stream}, pass);
  for (std::int64_t stream : block.other_streams) Streams::current().enqueue({allocation.device, stream}, pass);
  Streams::current().enqueue({allocation.device, kFreeing}, std::move(overwrite),
                             [streams_before] { return *streams_before == 0; });
}

void Memory::record_stream(const void* storage, std::int64_t stream) {
  if (!storage) return;
  std::lock_guard lock(mutex_);
  Allocation::Block& block = find(storage).live.at(const_cast<std::byte*>(static_cast<const std::byte*>(storage)));
  if (stream != block.stream) block.other_streams.insert(stream);
}

bool Memory::is_registered(const void* host_memory) {
  std::lock_guard lock(mutex_);
  const auto* address = static_cast<const std::byte*>(host_memory);
  return std::any_of(registered_.begin(), registered_.end(),
                     [&](const auto& range) { return range.first <= address && address < range.first + range.second; });
}

void Memory::check_host(const void* host_memory, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(host_memory);
  std::lock_guard lock(mutex_);
  for (const auto& [start, size] : registered_) {
    const bool begins_inside = start <= first && first < start + size;
    TORCH_CHECK(!begins_inside || first + bytes <= start + size, "invalid argument");  // as an H100 does
  }
}

void Memory::release(Allocation& allocation) {
  if (allocation.control) {
    for (auto& opener : allocation.control->openers)
      if (opener != 0 && is_running(opener)) violation("an allocation is freed that another process has open");
    ::munmap(allocation.control, kPage + allocation.bytes);
  } else {
    ::munmap(allocation.start, kReserved);
  }
}

void Memory::empty_cache() {
  if (Streams::exist()) Streams::current().synchronize_all();
  std::lock_guard lock(mutex_);
  std::erase_if(allocations_, [&](Allocation& each) {
    if (each.storages != 0) return false;
    release(each);
    return true;
  });
}

std::size_t Memory::bytes_in_storages() {
  std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Allocation& each : allocations_)
    for (auto& [storage, block] : each.live) sum += block.bytes;
  return sum;
}

std::size_t Memory::bytes_of_allocations() {
  std::lock_guard lock(mutex_);
  return bytes_in_use();
}

// ---------------------------------------------------------------- what others open

Memory::Base Memory::base_of(const void* address, int) {
  require_driver();
  std::lock_guard lock(mutex_);
  Allocation& allocation = find(address);
  if (allocation.control && suballocations_) {
    const auto& [start, block] =
        *std::prev(allocation.live.upper_bound(const_cast<std::byte*>(static_cast<const std::byte*>(address))));
    return {start, round_up(block.bytes, kAlignment)};
  }
  if (allocation.control) return {allocation.start, allocation.bytes};
  const std::size_t piece = std::size_t(static_cast<const std::byte*>(address) - allocation.start) / kPiece;
  return {allocation.start + piece * kPiece, kPiece, fabric_ ? By::kFabric : By::kDescriptor};
}

MemoryHandle Memory::handle_of(const Base& base, int) {
  require_driver();
  std::lock_guard lock(mutex_);
  const Allocation& allocation = find(base.start);
  const std::size_t piece = base.is_piece() ? std::size_t(base.start - allocation.start) / kPiece : 0;
  const int file = allocation.files.at(piece).get();
  OpaqueMemory opaque{kMemoryMagic, ::getpid(),      file, inode_of(file), std::uint64_t(base.start - allocation.start),
                      base.bytes,   allocation.bytes};
  MemoryHandle handle;
  std::memcpy(handle.bytes.data(), &opaque, sizeof opaque);
  return handle;
}

Fd Memory::descriptor_of(const Base& base, int) {
  require_driver();
  std::lock_guard lock(mutex_);
  Allocation& allocation = find(base.start);
  const std::size_t piece = std::size_t(base.start - allocation.start) / kPiece;
  return Fd(::fcntl(allocation.files.at(piece).get(), F_DUPFD_CLOEXEC, 0));
}

std::byte* Memory::open(const MemoryHandle& handle, std::size_t bytes, int device) {
  require_driver();
  make_context(device);
  OpaqueMemory opaque;
  std::memcpy(&opaque, handle.bytes.data(), sizeof opaque);
  if (opaque.magic != kMemoryMagic) throw DeviceError("the double: an invalid memory handle");
  if (opaque.process == ::getpid()) throw DeviceError("the double: a handle of the own process cannot be opened");
  if (opaque.bytes < bytes) throw DecodeError("the double: an allocation shorter than it is said to be");
  std::lock_guard lock(mutex_);
  if (auto found = opened_.find(opaque.inode); found != opened_.end()) {
    ++found->second.times;
    return found->second.start + opaque.offset;
  }
  const Fd file = open_file(handle);
  std::byte* mapped = map_file(nullptr, kPage + opaque.allocated, file.get());
  for (auto& opener : reinterpret_cast<Control*>(mapped)->openers) {
    pid_t known = opener;
    if (known != 0 && is_running(known)) continue;
    if (!opener.compare_exchange_strong(known, ::getpid())) continue;
    opened_.emplace(opaque.inode, Opened{mapped + kPage, opaque.allocated, 1});
    ++openings_;
    return mapped + kPage + opaque.offset;
  }
  ::munmap(mapped, kPage + opaque.allocated);
  throw DeviceError("the double: an allocation is open in too many processes");
}

void Memory::close(std::byte* opened, int device) noexcept {
  wait_for_device(device);
  std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(opened_, [&](const auto& entry) {
    return entry.second.start <= opened && opened < entry.second.start + entry.second.bytes;
  });
  if (found == opened_.end()) violation("an allocation is closed that is not open");
  const auto [start, bytes, times] = found->second;
  if (--found->second.times != 0) return;
  for (auto& opener : reinterpret_cast<Control*>(start - kPage)->openers) {
    pid_t self = ::getpid();
    if (opener.compare_exchange_strong(self, 0)) break;
  }
  ::munmap(start - kPage, kPage + bytes);
  opened_.erase(found);
}

std::byte* Memory::map(std::span<const Piece> pieces, int device) {
  require_driver();
  make_context(device);
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  std::byte* start = reserve(total);
  std::byte* at = start;
  for (const Piece& piece : pieces) {
    const Fd opened = piece.descriptor < 0 ? open_file(piece.handle) : Fd();
    map_file(at, piece.bytes, opened ? opened.get() : piece.descriptor);
    at += piece.bytes;
  }
  std::lock_guard lock(mutex_);
  ++openings_;
  ++mapped_;
  return start;
}

void Memory::unmap(std::byte* mapped, std::size_t bytes, int device) noexcept {
  wait_for_device(device);
  ::munmap(mapped, bytes);
  std::lock_guard lock(mutex_);
  --mapped_;
}

// ---------------------------------------------------------------- host memory

void Memory::register_host(std::byte* start, std::size_t bytes, int device) {
  require_driver();
  make_context(device);
  if (refused() == Refusal::kRegistrations) throw DeviceError("the double registers no memory");
  if (reinterpret_cast<std::uintptr_t>(start) % kPage != 0 || bytes % kPage != 0)
    throw DeviceError("the double registers whole pages only");
  std::lock_guard lock(mutex_);
  for (auto& [known, size] : registered_)
    if (start < known + size && known < start + bytes) throw DeviceError("the double: registered already");
  registered_.emplace(start, bytes);
  ++registrations_;
}

void Memory::unregister_host(std::byte* start, int device) noexcept {
  wait_for_device(device);
  std::lock_guard lock(mutex_);
  auto found = registered_.find(start);
  if (found == registered_.end()) violation("host memory is unregistered that was not registered");
  // The driver promises to wait for no other device.
  if (is_working() && Streams::exist() && Streams::current().has_words_in(start, found->second))
    violation("host memory is unregistered in which a stream is about to write or read a word");
  registered_.erase(found);
}

Memory::CaptureMode Memory::exchange_capture_mode(CaptureMode mode) noexcept {
  return host_double::exchange_capture_mode(mode);
}

bool Memory::is_initialized() noexcept {
  std::lock_guard lock(mutex_);
  return Streams::exist() || !allocations_.empty() || !opened_.empty();
}

Memory::Counts Memory::counts() {
  std::lock_guard lock(mutex_);
  Counts counts{openings_, int(opened_.size()) + mapped_, registrations_, 0, live_events()};
  for (auto& [start, bytes] : registered_) counts.registered_bytes += bytes;
  return counts;
}

// ---------------------------------------------------------------- for tests

void set_visible(std::vector<int> devices) { Memory::current().set_visible(std::move(devices)); }
void use_expandable_segments(bool on) { Memory::current().use_expandable_segments(on); }
void use_fabric_handles(bool on) { Memory::current().use_fabric_handles(on); }
void limit_memory(std::size_t bytes) { Memory::current().limit_memory(bytes); }
void use_suballocations(bool on) { Memory::current().use_suballocations(on); }
std::size_t bytes_in_storages() {
  require_initialized();
  return Memory::current().bytes_in_storages();
}
std::size_t bytes_of_allocations() { return Memory::current().bytes_of_allocations(); }
void empty_cache() { Memory::current().empty_cache(); }
int waiting_for_device() { return waiting; }

Counts counts() {
  const Memory::Counts memory = Memory::current().counts();
  return {memory.openings, memory.open, memory.registrations, memory.registered_bytes, memory.events};
}

}  // namespace shoal::host_double
