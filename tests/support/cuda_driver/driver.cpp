#include "tests/support/cuda_driver/driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct CUctx_st {
  int device;
};
struct CUstream_st {
  int device;
  bool is_blocking;
  bool is_captured = false;
  bool is_broken = false;
};

namespace {

constexpr int kDevices = 2;
constexpr std::size_t kGranularity = 2u << 20;

struct Allocation {
  int device;
  std::size_t bytes;
  DoubleKind kind;
  int piece = 0;  // what it was made of, if it was mapped
};
struct Piece {
  int holders = 0;  // handles, mappings and descriptors
  DoubleKind kind;
  std::size_t bytes;
};
struct Range {  // of addresses
  std::size_t bytes;
  std::set<int> accessible;  // by these devices
};

std::recursive_mutex mutex;
bool initialized = false;
CUctx_st contexts[kDevices] = {{0}, {1}};
std::set<int> retained;
thread_local std::vector<CUcontext> stack;
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
std::map<CUdeviceptr, Allocation> allocations;
std::map<int, Piece> pieces;
std::map<CUmemGenericAllocationHandle, int> handles;
std::map<CUdeviceptr, Range> reserved;
std::map<CUdeviceptr, std::pair<std::size_t, int>> mapped;  // bytes, piece
std::map<CUdeviceptr, int> opened;
std::map<std::uintptr_t, std::size_t> registered;
std::map<ino_t, int> descriptors;
std::vector<CUstream> streams;
int next_number = 1;
int initializations = 0, faults = 0;
std::string last_fault, failing;
int fail_after = 0;
CUresult fail_with = CUDA_SUCCESS;
DoubleMps mps = kDoubleNoMps;
struct Words {
  bool streams_know, host_addresses;
};
Words words_of[kDevices] = {{true, true}, {false, false}};
bool are_peers = true;

CUresult fault(const char* call, const char* what, CUresult result) {
  ++faults;
  last_fault = std::string(call) + ": " + what;
  return result;
}

/// What every call asks first. `unsafe`: it may not be made beside a capture.
CUresult enter(const char* call, bool needs_context, bool unsafe) {
  if (!initialized) return fault(call, "before cuInit", CUDA_ERROR_NOT_INITIALIZED);
  if (failing == call && fail_after-- == 0) {
    failing.clear();
    return fail_with;
  }
  if (needs_context && stack.empty()) return fault(call, "without a context", CUDA_ERROR_INVALID_CONTEXT);
  if (!unsafe || mode != CU_STREAM_CAPTURE_MODE_GLOBAL) return CUDA_SUCCESS;
  for (CUstream stream : streams)
    if (stream->is_captured) {
      stream->is_broken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  return CUDA_SUCCESS;
}

int current_device() { return stack.back()->device; }

std::map<CUdeviceptr, Allocation>::iterator allocation_at(CUdeviceptr address) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return allocations.end();
  --found;
  return address < found->first + found->second.bytes ? found : allocations.end();
}

CUdeviceptr make_address(std::size_t bytes) {
  return reinterpret_cast<CUdeviceptr>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

CUmemGenericAllocationHandle new_handle(int piece) {
  ++pieces.at(piece).holders;
  handles[CUmemGenericAllocationHandle(next_number)] = piece;
  return CUmemGenericAllocationHandle(next_number++);
}

bool is_registered(CUdeviceptr address) {
  return std::ranges::any_of(registered, [&](const auto& each) {
    return each.first <= address && address + sizeof(std::uint64_t) <= each.first + each.second;
  });
}

CUresult check_word(const char* call, CUstream stream, CUdeviceptr address) {
  if (stream && stream->device != current_device())
    return fault(call, "a stream of another context", CUDA_ERROR_INVALID_HANDLE);
  if (stream && stream->is_captured) return fault(call, "in a capture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (address % sizeof(std::uint64_t) != 0 || !is_registered(address))
    return fault(call, "not in registered memory", CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

}  // namespace

#define ENTER(needs_context, unsafe) \
  std::lock_guard lock(mutex);       \
  if (CUresult entered = enter(__func__, needs_context, unsafe)) return entered

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  std::lock_guard lock(mutex);
  if (flags != 0) return fault(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
  initialized = true;
  ++initializations;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_DOUBLE";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "in the words of the double";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  std::lock_guard lock(mutex);
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;  // that is how one asks whether it is
  *count = kDevices;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER(false, false);
  if (ordinal < 0 || ordinal >= kDevices) return fault(__func__, "no such device", CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  ENTER(false, false);
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = char(16 * device + i);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(false, false);
  switch (int(attribute)) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = words_of[device].streams_know;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      *value = words_of[device].host_addresses;
      return CUDA_SUCCESS;
    case 133:  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED
      if (mps == kDoubleMpsUnknown) return CUDA_ERROR_INVALID_VALUE;
      *value = mps == kDoubleMps;
      return CUDA_SUCCESS;
    default:
      return fault(__func__, "an attribute that says something else", CUDA_ERROR_INVALID_VALUE);
  }
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  ENTER(false, false);
  if (device == peer) return fault(__func__, "a device and itself", CUDA_ERROR_INVALID_DEVICE);
  *can = are_peers;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER(false, false);
  retained.insert(device);
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  ENTER(false, false);
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  ENTER(true, false);
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* given) {
  ENTER(false, false);
  std::swap(mode, *given);
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- memory

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address) {
  ENTER(true, false);
  auto found = allocation_at(address);
  if (found == allocations.end()) return CUDA_ERROR_NOT_FOUND;
  *start = found->first;
  *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER(true, false);
  auto found = allocation_at(address);
  if (attribute != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE || found == allocations.end())
    return fault(__func__, "attribute or address", CUDA_ERROR_INVALID_VALUE);
  const int value = found->second.kind == kDoubleLegacy;
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  ENTER(true, true);
  auto found = allocations.find(address);
  if (found == allocations.end() || found->second.kind != kDoubleLegacy || found->second.device != current_device())
    return fault(__func__, "no start of an allocation that can be shared, on this device", CUDA_ERROR_INVALID_VALUE);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &found->first, sizeof found->first);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  ENTER(true, true);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return fault(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
  struct {
    std::uint64_t magic, device, bytes;
  } foreign;
  std::memcpy(&foreign, &handle, sizeof foreign);
  if (foreign.magic != 0x6e676965726f66 || int(foreign.device) != current_device()) return CUDA_ERROR_INVALID_HANDLE;
  *address = make_address(foreign.bytes);
  allocations[*address] = {current_device(), foreign.bytes, kDoublePool};
  opened[*address] = current_device();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  ENTER(true, true);
  auto found = opened.find(address);
  if (found == opened.end() || found->second != current_device())
    return fault(__func__, "not open in this context", CUDA_ERROR_INVALID_VALUE);
  opened.erase(found);
  allocations.erase(address);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister(void* start, std::size_t bytes, unsigned int flags) {
  ENTER(true, true);
  if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
    return fault(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  for (const auto& [known, size] : registered)
    if (address < known + size && known < address + bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  registered[address] = bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* start) {
  ENTER(true, true);
  if (registered.erase(reinterpret_cast<std::uintptr_t>(start)) == 0)
    return fault(__func__, "not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- pieces

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  ENTER(true, false);
  auto found = allocation_at(reinterpret_cast<CUdeviceptr>(address));
  if (found == allocations.end() || found->second.piece == 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = new_handle(found->second.piece);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* made,
                                                        CUmemGenericAllocationHandle handle) {
  ENTER(true, false);
  if (!handles.contains(handle)) return fault(__func__, "no handle", CUDA_ERROR_INVALID_VALUE);
  std::memset(made, 0, sizeof *made);
  const DoubleKind kind = pieces.at(handles.at(handle)).kind;
  if (kind == kDoubleDescriptor) made->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (kind == kDoubleFabric) made->requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  ENTER(true, true);
  if (!handles.contains(handle) || flags != 0) return fault(__func__, "handle or flags", CUDA_ERROR_INVALID_VALUE);
  const int number = handles.at(handle);
  const Piece& piece = pieces.at(number);
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && piece.kind == kDoubleDescriptor) {
    const int file = ::memfd_create("piece", MFD_CLOEXEC);
    struct stat status{};
    ::fstat(file, &status);
    descriptors[status.st_ino] = number;
    std::memcpy(shareable, &file, sizeof file);
    return CUDA_SUCCESS;
  }
  if (type != CU_MEM_HANDLE_TYPE_FABRIC || piece.kind != kDoubleFabric)
    return fault(__func__, "a type that was not requested", CUDA_ERROR_INVALID_VALUE);
  std::memset(shareable, 0, sizeof(CUmemFabricHandle));
  std::memcpy(shareable, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                                CUmemAllocationHandleType type) {
  ENTER(true, true);
  int piece = 0;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    struct stat status{};
    if (::fstat(int(reinterpret_cast<std::intptr_t>(shareable)), &status) != 0)
      return fault(__func__, "no descriptor", CUDA_ERROR_INVALID_VALUE);
    piece = descriptors[status.st_ino];
  } else if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    std::memcpy(&piece, shareable, sizeof piece);
  }
  if (!pieces.contains(piece)) return CUDA_ERROR_INVALID_VALUE;
  *handle = new_handle(piece);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* start, std::size_t bytes, std::size_t alignment, CUdeviceptr wish,
                                     unsigned long long flags) {
  ENTER(true, true);
  if (bytes == 0 || bytes % kGranularity != 0 || alignment != 0 || wish != 0 || flags != 0)
    return fault(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
  *start = make_address(bytes);
  reserved[*start] = {bytes, {}};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr start, std::size_t bytes) {
  ENTER(true, true);
  auto found = reserved.find(start);
  if (found == reserved.end() || found->second.bytes != bytes)
    return fault(__func__, "not what was reserved", CUDA_ERROR_INVALID_VALUE);
  for (const auto& [address, mapping] : mapped)
    if (start <= address && address < start + bytes) return fault(__func__, "still mapped", CUDA_ERROR_INVALID_VALUE);
  reserved.erase(found);
  ::munmap(reinterpret_cast<void*>(start), bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER(true, true);
  auto within = reserved.upper_bound(address);
  if (within == reserved.begin() || offset != 0 || flags != 0 || !handles.contains(handle))
    return fault(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
  --within;
  const int piece = handles.at(handle);
  if (address + bytes > within->first + within->second.bytes || bytes != pieces.at(piece).bytes)
    return CUDA_ERROR_INVALID_VALUE;  // so says who was told a wrong length
  ++pieces.at(piece).holders;
  mapped[address] = {bytes, piece};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr start, std::size_t bytes) {
  ENTER(true, true);
  std::size_t gone = 0;
  for (auto at = mapped.lower_bound(start); at != mapped.end() && at->first < start + bytes; at = mapped.erase(at)) {
    gone += at->second.first;
    --pieces.at(at->second.second).holders;
  }
  return gone == bytes ? CUDA_SUCCESS : fault(__func__, "not what was mapped", CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr start, std::size_t bytes, const CUmemAccessDesc* access,
                                std::size_t count) {
  ENTER(true, true);
  auto found = reserved.find(start);
  std::size_t there = 0;
  for (const auto& [address, mapping] : mapped)
    if (start <= address && address < start + bytes) there += mapping.first;
  if (found == reserved.end() || there != bytes || count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (access->location.id != current_device() && !are_peers) || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return fault(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
  found->second.accessible.insert(access->location.id);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(true, true);
  auto found = handles.find(handle);
  if (found == handles.end()) return fault(__func__, "no handle", CUDA_ERROR_INVALID_VALUE);
  --pieces.at(found->second).holders;
  handles.erase(found);
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- streams

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  ENTER(true, false);
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return fault(__func__, "no fence before it", CUDA_ERROR_INVALID_VALUE);
  if (CUresult wrong = check_word(__func__, stream, address)) return wrong;
  *reinterpret_cast<volatile std::uint64_t*>(address) = value;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  ENTER(true, false);
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return fault(__func__, "another condition", CUDA_ERROR_INVALID_VALUE);
  if (CUresult wrong = check_word(__func__, stream, address)) return wrong;
  (void)value;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long* number) {
  ENTER(true, false);
  if (stream && stream->device != current_device())
    return fault(__func__, "another context", CUDA_ERROR_INVALID_HANDLE);
  const auto found = std::ranges::find(streams, stream);
  *number = stream ? 100ull + std::uint64_t(found - streams.begin()) : 1ull + std::uint64_t(current_device());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(true, true);
  *total = kDoubleMemory;
  *free = kDoubleMemory;
  for (const auto& [start, allocation] : allocations)
    if (allocation.device == current_device()) *free -= allocation.bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER(true, false);
  if (stream) {
    *status = stream->is_broken     ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
              : stream->is_captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                    : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  for (CUstream each : streams)
    if (each->is_captured && each->is_blocking && each->device == current_device())
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- for tests

CUdeviceptr double_allocate(int device, std::size_t bytes, DoubleKind kind) {
  std::lock_guard lock(mutex);
  const CUdeviceptr start = make_address(bytes);
  int piece = 0;
  if (kind >= kDoubleDescriptor) {
    piece = next_number++;
    pieces[piece] = {1, kind, bytes};
  }
  allocations[start] = {device, bytes, kind, piece};
  return start;
}

void double_foreign(int device, std::size_t bytes, CUipcMemHandle* handle) {
  const std::uint64_t words[] = {0x6e676965726f66, std::uint64_t(device), bytes};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, words, sizeof words);
}

CUstream double_stream(int device, bool is_blocking) {
  std::lock_guard lock(mutex);
  streams.push_back(new CUstream_st{device, is_blocking});
  return streams.back();
}

void double_capture(CUstream stream, bool begin) {
  std::lock_guard lock(mutex);
  stream->is_captured = begin;
  stream->is_broken = false;
}

bool double_capture_is_broken(CUstream stream) { return stream->is_broken; }

void double_fail(const char* call, int skip, CUresult with) {
  std::lock_guard lock(mutex);
  failing = call ? call : "";
  fail_after = skip;
  fail_with = with;
}

void double_mps(DoubleMps is) {
  std::lock_guard lock(mutex);
  mps = is;
}

void double_words(int device, bool streams_know, bool host_addresses) {
  std::lock_guard lock(mutex);
  words_of[device] = {streams_know, host_addresses};
}

DoubleCounts double_counts() {
  std::lock_guard lock(mutex);
  return {initializations,       int(retained.size()), int(stack.size()),    faults,
          int(handles.size()),   int(mapped.size()),   int(reserved.size()), int(opened.size()),
          int(registered.size())};
}

void double_peers(bool are) { are_peers = are; }
int double_accessible(CUdeviceptr start) {
  std::lock_guard lock(mutex);
  return int(reserved.at(start).accessible.size());
}

const char* double_fault() { return last_fault.c_str(); }
}
