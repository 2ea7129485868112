// A CUDA driver for tests: what libcuda.so.1 offers to shoal, over memory of the host, and as strict as cuda.h says.
#pragma once

#include <cuda.h>

#include <cstddef>

/// It is a library of its own, named and found as the driver's is. A call before cuInit, without a context, with a flag
/// that does not belong there, for memory or a stream of another device, or out of turn, returns the error that cuda.h
/// names, and is counted as a fault if no correct program does it. It works on nothing: what its streams are told is
/// done at once, if it can be. Two devices. Threads: any, one at a time in what is below.
extern "C" {

enum DoubleKind { kDoubleLegacy, kDoublePool, kDoubleDescriptor, kDoubleFabric, kDoublePrivatePiece };
/// Memory of a device, of this process, or as an IPC handle of another process names it.
CUdeviceptr double_allocate(int device, std::size_t bytes, DoubleKind kind);
void double_foreign(int device, std::size_t bytes, CUipcMemHandle* handle);
/// What each device has.
constexpr std::size_t kDoubleMemory = 1u << 30;
/// A stream of a device; begins and ends its capture in GLOBAL mode, by another thread.
CUstream double_stream(int device, bool is_blocking);
void double_capture(CUstream stream, bool begin);
/// Whether a call has broken the capture.
bool double_capture_is_broken(CUstream stream);

/// Lets the call of that name fail once, after `skip` others, with this error; null: none.
void double_fail(const char* call, int skip, CUresult with);

/// Whether contexts are shared by MPS, or the driver is too old to be asked.
enum DoubleMps { kDoubleNoMps, kDoubleMps, kDoubleMpsUnknown };
void double_mps(DoubleMps is);

/// Whether the device's streams know words, and whether its addresses of registered memory are the host's. Unless said
/// both are so on device 0, and neither is on device 1.
void double_words(int device, bool streams_know, bool host_addresses);

struct DoubleCounts {
  int initializations, contexts, pushed, faults;  // pushed: contexts on this thread's stack now
  int handles, mappings, reservations, openings;  // there now
  int registrations;
};
DoubleCounts double_counts();
/// Whether each device can be told to see the other's memory; from the start they can.
void double_peers(bool are);
/// How many devices may use what is mapped there.
int double_accessible(CUdeviceptr start);
/// The last fault, in words.
const char* double_fault();
}
