#include <shoal/internal/tensors/driver/cuda_memory.h>

#include <fmt/format.h>
#include <shoal/internal/tensors/driver/cuda_driver.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace shoal {
namespace {

static_assert(sizeof(CUipcMemHandle) == sizeof(MemoryHandle));
static_assert(sizeof(CUmemFabricHandle) == sizeof(MemoryHandle));

/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which not every toolkit's header has.
constexpr auto kIsShared = CUdevice_attribute(133);

/// The hardware queues that the driver gives a process on each device.
std::size_t queues_of_process() {
  constexpr std::size_t kUnlessSaid = 8;
  const char* said = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (!said) return kUnlessSaid;
  std::size_t queues = 0;
  const auto [end, error] = std::from_chars(said, said + std::strlen(said), queues);
  return error == std::errc() && *end == 0 && queues > 0 ? queues : kUnlessSaid;
}

CUdeviceptr device_address(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
std::byte* address_of(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

/// DeviceMemory by the CUDA driver. Works in the devices' primary contexts, which are what libtorch and libcudart use.
class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(const CudaDriver& driver, int count) : driver_(driver), devices_(std::size_t(count)) {}

  const char* name() const override { return "CUDA"; }
  int device_count() override { return int(devices_.size()); }

  DeviceUuid uuid(int device) override {
    CUuuid found{};
    driver_.check(driver_.cuDeviceGetUuid_v2(&found, handle(device)), "asking for a CUDA device's UUID");
    DeviceUuid uuid;
    std::memcpy(uuid.bytes.data(), found.bytes, sizeof found.bytes);
    return uuid;
  }

  std::size_t free_bytes(int device) override {
    InContext context(*this, device);
    std::size_t free = 0, total = 0;
    driver_.check(driver_.cuMemGetInfo(&free, &total), "asking for a CUDA device's free memory");
    return free;
  }

  Base base_of(const void* address, int device) override {
    InContext context(*this, device);
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    driver_.check(driver_.cuMemGetAddressRange(&start, &bytes, device_address(address)),
                  "finding the allocation that a CUDA tensor lies in");
    // In this order: drivers may well make ordinary allocations of mapped pieces, too.
    int shareable = 0;
    driver_.check(driver_.cuPointerGetAttribute(&shareable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, start),
                  "asking whether a CUDA tensor's memory can be shared");
    if (shareable) return {address_of(start), bytes, By::kHandle};
    CUmemGenericAllocationHandle piece{};
    if (!is_mapped_piece(address, piece))
      throw DeviceError(
          "a CUDA tensor's memory comes from an allocator whose memory cannot be shared between processes "
          "(cudaMallocAsync, managed memory): use libtorch's own allocator (PYTORCH_CUDA_ALLOC_CONF without "
          "backend:cudaMallocAsync), or send tensor.cpu()");
    CUmemAllocationProp made{};
    const CUresult known = driver_.cuMemGetAllocationPropertiesFromHandle(&made, piece);
    driver_.cuMemRelease(piece);
    driver_.check(known, "asking how a piece of an expandable CUDA segment was made");
    if (made.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return {address_of(start), bytes, By::kDescriptor};
    if (made.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) return {address_of(start), bytes, By::kFabric};
    throw DeviceError(
        "sharing a piece of an expandable CUDA segment: it was made without a handle that could cross: turn expandable "
        "segments off (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False), or send tensor.cpu()");
  }

  MemoryHandle handle_of(const Base& base, int device) override {
    InContext context(*this, device);
    if (base.by == By::kFabric) {
      MemoryHandle handle;
      export_piece(base, &handle, CU_MEM_HANDLE_TYPE_FABRIC);
      return handle;
    }
    CUipcMemHandle found{};
    driver_.check(driver_.cuIpcGetMemHandle(&found, device_address(base.start)), "sharing a CUDA allocation");
    MemoryHandle handle;
    std::memcpy(handle.bytes.data(), &found, sizeof found);
    return handle;
  }

  Fd descriptor_of(const Base& base, int device) override {
    InContext context(*this, device);
    int descriptor = -1;
    export_piece(base, &descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return Fd(descriptor);
  }

  std::byte* open(const MemoryHandle& handle, std::size_t bytes, int device) override {
    InContext context(*this, device);
    CUipcMemHandle given;
    std::memcpy(&given, handle.bytes.data(), sizeof given);
    CUdeviceptr opened = 0;
    // Peer access to a device that is not the current one is set up when it is first used.
    driver_.check(driver_.cuIpcOpenMemHandle(&opened, given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  "opening a CUDA allocation of another process");
    // Its length is what somebody wrote into shared memory: the driver knows the real one.
    CUdeviceptr start = 0;
    std::size_t length = 0;
    CUresult known = driver_.cuMemGetAddressRange(&start, &length, opened);
    if (known == CUDA_SUCCESS && start == opened && length >= bytes) return address_of(opened);
    driver_.cuIpcCloseMemHandle(opened);
    if (known == CUDA_SUCCESS)
      throw DecodeError(
          fmt::format("a CUDA allocation from another process is said to have {} bytes and has {}", bytes, length));
    driver_.check(known, "asking for the length of an opened CUDA allocation");
    return nullptr;
  }

  void close(std::byte* opened, int device) noexcept override {
    InContext context(*this, device, std::nothrow);
    driver_.cuIpcCloseMemHandle(device_address(opened));
  }

  std::byte* map(std::span<const Piece> pieces, int device) override {
    InContext context(*this, device);
    std::size_t total = 0;
    for (const Piece& piece : pieces)
      if (__builtin_add_overflow(total, piece.bytes, &total)) throw DecodeError("pieces of a CUDA segment: overflow");
    Mapping mapping{driver_};
    driver_.check(driver_.cuMemAddressReserve(&mapping.start, total, 0, 0, 0), "reserving CUDA addresses");
    mapping.reserved = total;
    for (const Piece& piece : pieces) {
      CUmemGenericAllocationHandle handle{};
      const bool by_fabric = piece.descriptor < 0;
      MemoryHandle fabric = piece.handle;
      void* given = by_fabric ? static_cast<void*>(&fabric) : reinterpret_cast<void*>(std::intptr_t(piece.descriptor));
      driver_.check(
          driver_.cuMemImportFromShareableHandle(
              &handle, given, by_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "opening a piece of an expandable CUDA segment of another process");
      CUresult mapped = driver_.cuMemMap(mapping.start + mapping.mapped, piece.bytes, 0, handle, 0);
      driver_.cuMemRelease(handle);  // the mapping keeps it
      driver_.check(mapped, "mapping a piece of an expandable CUDA segment of another process");
      mapping.mapped += piece.bytes;
    }
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = handle(device);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver_.check(driver_.cuMemSetAccess(mapping.start, total, &access, 1), "making CUDA memory accessible");
    // As libtorch does for what it opens: its copies from another device take the memory to be mapped there, too. Where
    // that is refused, this one has it still.
    for (int other = 0; other < device_count(); ++other) {
      int can = 0;
      if (other == device || driver_.cuDeviceCanAccessPeer(&can, handle(other), handle(device)) != CUDA_SUCCESS ||
          can == 0)
        continue;
      access.location.id = handle(other);
      (void)driver_.cuMemSetAccess(mapping.start, total, &access, 1);
    }
    return address_of(std::exchange(mapping.start, 0));
  }

  void unmap(std::byte* mapped, std::size_t bytes, int device) noexcept override {
    InContext context(*this, device, std::nothrow);
    const Mapping gone{driver_, device_address(mapped), bytes, bytes};
  }

  void register_host(std::byte* start, std::size_t bytes, int device) override {
    InContext context(*this, device);
    CUresult result = driver_.cuMemHostRegister(
        start, bytes,
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);  // for all devices, and their streams' words
    if (result != CUDA_SUCCESS)
      throw DeviceError(fmt::format("pinning {} bytes of shared memory: {}", bytes, driver_.describe(result)));
  }

  void unregister_host(std::byte* start, int device) noexcept override {
    InContext context(*this, device, std::nothrow);
    driver_.cuMemHostUnregister(start);
  }

  bool has_words(int device) override {
    int words = 0, host_addresses = 0;
    const CUdevice on = handle(device);
    driver_.check(driver_.cuDeviceGetAttribute(&words, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, on),
                  "asking whether a CUDA device's streams write words");
    driver_.check(
        driver_.cuDeviceGetAttribute(&host_addresses, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, on),
        "asking whether a CUDA device uses the host's addresses");
    return words != 0 && host_addresses != 0;
  }

  std::size_t most_waiting_streams(int device) override {
    // Processes that share one context by MPS share its queues, and one that is killed while a stream of its waits may
    // take the others with it. A driver that does not know the question is none of those that answer yes.
    int shared = 0;
    if (driver_.cuDeviceGetAttribute(&shared, kIsShared, handle(device)) == CUDA_SUCCESS && shared != 0) return 0;
    return most_waiting_streams_;
  }

  void write_word(void* stream, std::uint64_t* word, std::uint64_t value, int device) override {
    InContext context(*this, device);
    // The default flag: a fence of the whole system before the write.
    driver_.check(driver_.cuStreamWriteValue64(static_cast<CUstream>(stream), device_address(word), value,
                                               CU_STREAM_WRITE_VALUE_DEFAULT),
                  "queueing the write of a word on a CUDA stream");
  }

  void wait_word(void* stream, const std::uint64_t* word, std::uint64_t value, int device) override {
    InContext context(*this, device);
    driver_.check(driver_.cuStreamWaitValue64(static_cast<CUstream>(stream), device_address(word), value,
                                              CU_STREAM_WAIT_VALUE_GEQ),
                  "queueing the wait for a word on a CUDA stream");
  }

  std::uint64_t stream_number(void* stream, int device) override {
    InContext context(*this, device);
    unsigned long long number = 0;
    driver_.check(driver_.cuStreamGetId(static_cast<CUstream>(stream), &number), "asking for a CUDA stream's number");
    return number;
  }

  bool is_captured(void* stream, int device) override {
    InContext context(*this, device);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver_.cuStreamIsCapturing(static_cast<CUstream>(stream), &status);
    // The default stream, and another one that waits for it is captured: no use of it is allowed until that has ended.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    driver_.check(result, "asking whether a CUDA stream is captured");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  CaptureMode exchange_capture_mode(CaptureMode mode) noexcept override {
    CUstreamCaptureMode exchanged = driver_mode(mode);
    if (driver_.cuThreadExchangeStreamCaptureMode(&exchanged) != CUDA_SUCCESS) return mode;
    if (exchanged == CU_STREAM_CAPTURE_MODE_GLOBAL) return CaptureMode::kAnyThread;
    return exchanged == CU_STREAM_CAPTURE_MODE_RELAXED ? CaptureMode::kNever : CaptureMode::kThisThread;
  }

  bool is_initialized() noexcept override { return cuda_is_initialized(); }

 private:
  struct Device {
    CUdevice handle = 0;
    CUcontext context = nullptr;
  };

  static CUstreamCaptureMode driver_mode(CaptureMode mode) {
    if (mode == CaptureMode::kAnyThread) return CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode == CaptureMode::kNever ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  }

  CUdevice handle(int device) {
    if (device < 0 || device >= device_count())
      throw std::invalid_argument(fmt::format("CUDA device {} of {}", device, device_count()));
    CUdevice handle = 0;
    driver_.check(driver_.cuDeviceGet(&handle, device), "finding a CUDA device");
    return handle;
  }

  /// Retained once and kept: giving it back could end a context that libtorch works in.
  CUcontext context_of(int device) {
    CUdevice found = handle(device);
    std::lock_guard lock(mutex_);
    CUcontext& context = devices_[std::size_t(device)].context;
    if (!context) driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, found), "entering a CUDA device's context");
    return context;
  }

  /// Makes a device's primary context the thread's current one, and restores what was. Breaks no capture meanwhile.
  class InContext {
   public:
    InContext(CudaMemory& memory, int device) : driver_(memory.driver_), unseen_(memory) {
      driver_.check(driver_.cuCtxPushCurrent(memory.context_of(device)), "entering a CUDA device's context");
      pushed_ = true;
    }
    /// While the driver shuts down nothing works any more, and nothing needs to.
    InContext(CudaMemory& memory, int device, std::nothrow_t) noexcept : driver_(memory.driver_), unseen_(memory) {
      try {
        pushed_ = driver_.cuCtxPushCurrent(memory.context_of(device)) == CUDA_SUCCESS;
      } catch (...) {
      }
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;
    ~InContext() {
      CUcontext left;
      if (pushed_) driver_.cuCtxPopCurrent(&left);
    }

   private:
    const CudaDriver& driver_;
    const BesideCaptures unseen_;
    bool pushed_ = false;
  };

  /// A range of addresses with pieces in it, taken apart again where it goes.
  struct Mapping {
    const CudaDriver& driver;
    CUdeviceptr start = 0;
    std::size_t reserved = 0, mapped = 0;
    ~Mapping() {
      if (start == 0) return;
      if (mapped != 0) driver.cuMemUnmap(start, mapped);
      driver.cuMemAddressFree(start, reserved);
    }
  };

  /// Whether the address lies in memory that was mapped by cuMemMap, as expandable segments are; then `piece` is
  /// retained.
  bool is_mapped_piece(const void* address, CUmemGenericAllocationHandle& piece) {
    return driver_.cuMemRetainAllocationHandle(&piece, const_cast<void*>(address)) == CUDA_SUCCESS;
  }

  void export_piece(const Base& base, void* shareable, CUmemAllocationHandleType type) {
    CUmemGenericAllocationHandle piece{};
    if (!is_mapped_piece(base.start, piece)) throw DeviceError("a piece of an expandable CUDA segment is gone");
    const CUresult result = driver_.cuMemExportToShareableHandle(shareable, piece, type, 0);
    driver_.cuMemRelease(piece);
    driver_.check(result, "sharing a piece of an expandable CUDA segment");
  }

  const CudaDriver& driver_;
  const std::size_t most_waiting_streams_ = most_waiting_in(queues_of_process());
  std::mutex mutex_;  // devices_
  std::vector<Device> devices_;
};

struct Loaded {
  CudaMemory* memory = nullptr;
  std::string missing;

  Loaded() {
    const CudaDriver* driver = CudaDriver::load(missing);
    if (!driver) return;
    int count = 0;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS) result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && count > 0)
      memory = new CudaMemory(*driver, count);  // never destroyed: tensors with static lifetime let go of memory late
    else
      missing = result == CUDA_SUCCESS ? "this process sees no CUDA device" : "CUDA: " + driver->describe(result);
  }
};

Loaded& loaded() {
  static Loaded loaded;
  return loaded;
}

}  // namespace

DeviceMemory* cuda_memory() { return loaded().memory; }

std::string cuda_memory_missing() { return loaded().missing; }

bool cuda_is_initialized() noexcept {
  auto* device_count = CudaDriver::loaded_device_count();
  int count;
  return device_count && device_count(&count) != CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace shoal
