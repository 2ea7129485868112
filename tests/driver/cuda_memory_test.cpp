// What tensors/driver calls of CUDA's driver: the right calls, in a context, beside captures, undone where one fails.
#include <shoal/internal/tensors/driver/cuda_memory.h>

#include <ATen/ops/ones.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/cuda_driver/driver.h"

using namespace shoal;
using By = DeviceMemory::By;

namespace {

constexpr std::size_t kPiece = 2u << 20;

DeviceMemory& memory() {
  REQUIRE(cuda_memory() != nullptr);
  return *cuda_memory();
}

void* address_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr device_address(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

/// Runs it in a thread that has no context, beside another stream's capture: that is not broken, no context stays, no
/// rule is broken. What it throws, it throws here.
template <class Act>
void by_the_rules(Act act) {
  CUstream captured = double_stream(0, false);
  double_capture(captured, true);
  const int faults = double_counts().faults;
  std::exception_ptr error;
  std::thread([&] {
    try {
      act();
    } catch (...) {
      error = std::current_exception();
    }
    CHECK(double_counts().pushed == 0);
    // The thread's own mode is what it was: this breaks the capture.
    CHECK_FALSE(double_capture_is_broken(captured));
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxPushCurrent(context);
    CHECK(cuMemHostUnregister(nullptr) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cuCtxPopCurrent(&context);
  }).join();
  double_capture(captured, false);
  if (double_counts().faults != faults) FAIL_CHECK("broken rule: " << double_fault());
  if (error) std::rethrow_exception(error);
}

std::vector<DeviceMemory::Piece> exported(int device, DoubleKind kind, int count, std::vector<Fd>& descriptors) {
  std::vector<DeviceMemory::Piece> pieces;
  for (int i = 0; i < count; ++i) {
    const auto base = memory().base_of(address_of(double_allocate(device, kPiece, kind)), device);
    if (base.by == By::kFabric) {
      pieces.push_back({-1, base.bytes, memory().handle_of(base, device)});
    } else {
      descriptors.push_back(memory().descriptor_of(base, device));
      pieces.push_back({descriptors.back().get(), base.bytes});
    }
  }
  return pieces;
}

MemoryHandle foreign(int device, std::size_t bytes) {
  CUipcMemHandle given;
  double_foreign(device, bytes, &given);
  MemoryHandle handle;
  std::memcpy(handle.bytes.data(), &given, sizeof given);
  return handle;
}

}  // namespace

TEST_CASE("cuda memory: the driver is started by whoever asks for a device, and not by who asks whether it was") {
  if (double_counts().initializations == 0) CHECK_FALSE(cuda_is_initialized());
  CHECK(memory().device_count() == 2);
  CHECK(memory().is_initialized());
  CHECK(double_counts().initializations == 1);
  CHECK(cuda_memory_missing().empty());
}

TEST_CASE("cuda memory: devices have UUIDs, without the kind of device before them") {
  by_the_rules([] {
    CHECK(memory().uuid(0).str() == "00010203-0405-0607-0809-0a0b0c0d0e0f");
    CHECK(memory().index_of(memory().uuid(1)) == 1);
    CHECK_THROWS_WITH(memory().index_of(DeviceUuid{}),
                      ContainsSubstring("UUID 00000000-0000") && !ContainsSubstring("GPU-"));
    CHECK_THROWS_AS(memory().uuid(2), std::invalid_argument);
  });
}

TEST_CASE("cuda memory: what is free on a device is what nobody has of it") {
  by_the_rules([] {
    for (const int device : {0, 1}) {
      const std::size_t before = memory().free_bytes(device), other = memory().free_bytes(1 - device);
      (void)double_allocate(device, 3 * kPiece, kDoubleLegacy);
      CHECK(memory().free_bytes(device) == before - 3 * kPiece);
      CHECK(memory().free_bytes(1 - device) == other);
    }
    double_fail("cuMemGetInfo_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_THROWS_WITH(memory().free_bytes(0), ContainsSubstring("asking for a CUDA device's free memory"));
    CHECK_THROWS_AS(memory().free_bytes(2), std::invalid_argument);
  });
}

TEST_CASE("cuda memory: an allocation's kind says how it crosses, and what cannot cross says why") {
  by_the_rules([] {
    for (const auto& [kind, by] :
         {std::pair(kDoubleLegacy, By::kHandle), {kDoubleDescriptor, By::kDescriptor}, {kDoubleFabric, By::kFabric}})
      for (int device : {0, 1}) {
        const CUdeviceptr start = double_allocate(device, kPiece, kind);
        const auto base = memory().base_of(address_of(start + 4711), device);
        CHECK(static_cast<void*>(base.start) == address_of(start));
        CHECK(base.bytes == kPiece);
        CHECK(base.by == by);
        if (by == By::kDescriptor)
          CHECK(memory().descriptor_of(base, device).get() >= 0);
        else
          CHECK((memory().handle_of(base, device).bytes != MemoryHandle{}.bytes));
      }
    CHECK_THROWS_WITH(memory().base_of(address_of(double_allocate(0, 100, kDoublePool)), 0),
                      ContainsSubstring("cudaMallocAsync"));
    CHECK_THROWS_WITH(memory().base_of(address_of(double_allocate(0, kPiece, kDoublePrivatePiece)), 0),
                      ContainsSubstring("expandable_segments:False"));
    int nowhere = 0;
    CHECK_THROWS_AS(memory().base_of(&nowhere, 0), DeviceError);
  });
  CHECK(double_counts().handles == 0);
}

TEST_CASE("cuda memory: another process's allocation is opened on its device, and is as long as it is said to be") {
  by_the_rules([] {
    std::byte* opened = memory().open(foreign(1, 1000), 1000, 1);
    CHECK(double_counts().openings == 1);
    memory().close(opened, 1);
    CHECK(double_counts().openings == 0);
    CHECK_THROWS_AS(memory().open(foreign(1, 1000), 1001, 1), DecodeError);
    CHECK(double_counts().openings == 0);
    CHECK_THROWS_AS(memory().open(MemoryHandle{}, 1, 0), DeviceError);
    double_fail("cuMemGetAddressRange_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_THROWS_WITH(memory().open(foreign(0, 10), 10, 0), ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY (2)"));
    CHECK(double_counts().openings == 0);
  });
}

TEST_CASE("cuda memory: pieces are mapped side by side, by descriptors or fabric handles, and unmapped whole") {
  by_the_rules([] {
    for (const DoubleKind kind : {kDoubleDescriptor, kDoubleFabric})
      for (int device : {0, 1}) {
        std::vector<Fd> descriptors;
        const auto pieces = exported(device, kind, 3, descriptors);
        std::byte* mapped = memory().map(pieces, device);
        CHECK(double_counts().mappings == 3);
        CHECK(double_counts().handles == 0);                    // the mappings keep them
        CHECK(double_accessible(device_address(mapped)) == 2);  // a copy from the other device goes there, too
        memory().unmap(mapped, 3 * kPiece, device);
        CHECK(double_counts().mappings == 0);
        CHECK(double_counts().reservations == 0);
      }
  });
}

TEST_CASE("cuda memory: pieces are mapped for their own device where others cannot see them, or the driver refuses") {
  by_the_rules([] {
    std::vector<Fd> descriptors;
    const auto pieces = exported(0, kDoubleDescriptor, 2, descriptors);
    double_peers(false);
    std::byte* mapped = memory().map(pieces, 0);
    CHECK(double_accessible(device_address(mapped)) == 1);
    memory().unmap(mapped, 2 * kPiece, 0);
    double_peers(true);
    double_fail("cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY);
    mapped = memory().map(pieces, 0);
    CHECK(double_accessible(device_address(mapped)) == 1);
    double_fail(nullptr, 0, CUDA_SUCCESS);
    memory().unmap(mapped, 2 * kPiece, 0);
    CHECK(double_counts().mappings == 0);
  });
}

TEST_CASE("cuda memory: where one of the calls that map pieces fails, the others are undone") {
  by_the_rules([] {
    std::vector<Fd> descriptors;
    auto pieces = exported(0, kDoubleDescriptor, 3, descriptors);
    int failed = 0;
    for (const char* call : {"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"})
      for (int skip = 0; skip < 3; ++skip) {
        INFO(call << ", the call number " << skip);
        double_fail(call, skip, CUDA_ERROR_OUT_OF_MEMORY);
        try {
          memory().unmap(memory().map(pieces, 0), 3 * kPiece, 0);
        } catch (const DeviceError& error) {
          ++failed;
          CHECK_THAT(error.what(), ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY"));
        }
        double_fail(nullptr, 0, CUDA_SUCCESS);
        CHECK(double_counts().mappings == 0);
        CHECK(double_counts().reservations == 0);
        CHECK(double_counts().handles == 0);
      }
    CHECK(failed == 1 + 3 + 3 + 1);
    pieces[1].bytes *= 2;  // as a damaged message may say
    CHECK_THROWS_AS(memory().map(pieces, 0), DeviceError);
    CHECK(double_counts().mappings == 0);
    CHECK(double_counts().reservations == 0);
    CHECK(double_counts().handles == 0);
  });
}

TEST_CASE("cuda memory: whatever asking about a piece fails with, no handle stays") {
  by_the_rules([] {
    for (const char* call : {"cuMemGetAllocationPropertiesFromHandle", "cuPointerGetAttribute"}) {
      double_fail(call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      CHECK_THROWS_AS(memory().base_of(address_of(double_allocate(0, kPiece, kDoubleFabric)), 0), DeviceError);
    }
    const auto base = memory().base_of(address_of(double_allocate(0, kPiece, kDoubleDescriptor)), 0);
    double_fail("cuMemExportToShareableHandle", 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_THROWS_AS(memory().descriptor_of(base, 0), DeviceError);
    CHECK(double_counts().handles == 0);
  });
}

TEST_CASE("cuda memory: words are written and awaited in memory that is registered for all devices") {
  alignas(4096) static std::uint64_t words[512];
  auto* start = reinterpret_cast<std::byte*>(words);
  by_the_rules([&] {
    CHECK(memory().has_words(0));
    CHECK_FALSE(memory().has_words(1));
    memory().register_host(start, sizeof words, 1);
    CHECK_THROWS_WITH(memory().register_host(start, sizeof words, 0),
                      ContainsSubstring("4096 bytes") && !ContainsSubstring("ulimit"));
    for (int device : {0, 1})
      for (CUstream stream : {double_stream(device, false), CUstream()}) {
        memory().write_word(stream, words + 7, 40 + std::uint64_t(device), device);
        CHECK(words[7] == 40u + unsigned(device));
        memory().wait_word(stream, words + 7, 40, device);
      }
    memory().unregister_host(start, 1);
    CHECK(double_counts().registrations == 0);
  });
  CHECK_THROWS_AS(memory().write_word(double_stream(0, false), words, 1, 0), DeviceError);
  CHECK_THROWS_AS(memory().wait_word(double_stream(0, false), words, 1, 0), DeviceError);
}

TEST_CASE("cuda memory: words need streams that know them, and the host's addresses on the device") {
  by_the_rules([] {
    for (const bool streams_know : {false, true})
      for (const bool host_addresses : {false, true}) {
        double_words(1, streams_know, host_addresses);
        CHECK(memory().has_words(1) == (streams_know && host_addresses));
      }
    double_words(1, false, false);
  });
}

TEST_CASE("cuda memory: nothing starts the driver in a process that asks for no tensor of a device") {
  Process<int> process(
      {.name = "asker of nothing"}, +[] {
        static const c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> guard;  // as a libtorch for CUDA has one
        c10::impl::registerDeviceGuard(c10::kCUDA, &guard);
        Queue<at::Tensor> queue(1);
        queue.put(at::ones({4}));
        (void)queue.get();
        (void)device_ipc_statistics();
        DeviceIpc::current().wake();
        ipc_collect();
        (void)DeviceIpc::give_back_for_allocator();
        const bool may_fork = device_fork_refusal() == nullptr;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the collector's thread has looked by then
        return may_fork ? double_counts().initializations : -1;
      });
  process.start();
  CHECK(process.result() == 0);
}

TEST_CASE("cuda memory: what a device is asked for makes no context on it") {
  by_the_rules([] {
    const int before = double_counts().contexts;  // 0 in a process that has done nothing else
    for (int device : {0, 1}) {
      (void)memory().index_of(memory().uuid(device));
      (void)memory().has_words(device);
      (void)memory().most_waiting_streams(device);
    }
    {
      const BesideCaptures unseen(memory());
    }
    CHECK(double_counts().contexts == before);
  });
}

TEST_CASE("cuda memory: half of the process's queues may wait, four at most, and none where contexts are shared") {
  by_the_rules([] {
    CHECK(memory().most_waiting_streams(0) == 4);
    double_mps(kDoubleMps);
    CHECK(memory().most_waiting_streams(0) == 0);
    double_mps(kDoubleMpsUnknown);
    CHECK(memory().most_waiting_streams(0) == 4);
    double_mps(kDoubleNoMps);
  });
  for (const auto& [queues, most] : {std::pair("1", 0), {"2", 1}, {"5", 2}, {"32", 4}, {"", 4}, {"0", 4}, {"4x", 4}}) {
    CAPTURE(queues);
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
    Process<int> process(
        {.name = "asker", .start_method = StartMethod::spawn},
        +[] { return int(cuda_memory()->most_waiting_streams(0)); });
    process.start();
    CHECK(process.result() == most);
  }
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_CASE("cuda memory: streams have numbers, the default ones of two devices different ones") {
  by_the_rules([] {
    std::vector<std::uint64_t> numbers;
    for (int device : {0, 1}) {
      numbers.push_back(memory().stream_number(nullptr, device));
      numbers.push_back(memory().stream_number(double_stream(device, false), device));
    }
    std::ranges::sort(numbers);
    CHECK(std::ranges::adjacent_find(numbers) == numbers.end());
  });
}

TEST_CASE("cuda memory: a stream is captured, or the default one that a captured stream stands in the way of") {
  by_the_rules([] {
    CUstream stream = double_stream(0, false), blocking = double_stream(0, true);
    CHECK_FALSE(memory().is_captured(stream, 0));
    double_capture(stream, true);
    CHECK(memory().is_captured(stream, 0));
    CHECK_FALSE(memory().is_captured(nullptr, 0));
    double_capture(stream, false);
    double_capture(blocking, true);
    CHECK(memory().is_captured(nullptr, 0));
    CHECK_FALSE(memory().is_captured(nullptr, 1));
    double_capture(blocking, false);
    double_fail("cuStreamIsCapturing", 0, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_THROWS_AS(memory().is_captured(stream, 0), DeviceError);
  });
}

TEST_CASE("cuda memory: a context that cannot be entered is an error, and what may not throw does nothing") {
  by_the_rules([] {
    alignas(4096) static std::byte page[4096];
    for (const char* call : {"cuCtxPushCurrent_v2", "cuDeviceGet"}) {
      double_fail(call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      CHECK_THROWS_AS(memory().register_host(page, sizeof page, 0), DeviceError);
    }
    CHECK(double_counts().registrations == 0);
  });
}
