// The functions of the CUDA driver that shoal calls. Empty without the toolkit's headers. Not for users.
#pragma once

#if __has_include(<cuda.h>)
// libtorch's default stream is the legacy one, whatever a project says that builds shoal as a part of itself: with this
// the functions below would be others, for which a null stream is the thread's own.
#undef CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda.h>

#include <string>

namespace shoal {

// Each has the name from the toolkit's header, which says the version (cuIpcOpenMemHandle_v2). cuDeviceGetUuid does so
// from CUDA 13 on only: its first version gives all instances of a MIG device one UUID.
#define SHOAL_CUDA_FUNCTIONS(each)              \
  each(cuInit);                                 \
  each(cuGetErrorName);                         \
  each(cuGetErrorString);                       \
  each(cuDeviceGetCount);                       \
  each(cuDeviceGet);                            \
  each(cuDeviceGetUuid_v2);                     \
  each(cuDeviceGetAttribute);                   \
  each(cuDeviceCanAccessPeer);                  \
  each(cuDevicePrimaryCtxRetain);               \
  each(cuCtxPushCurrent);                       \
  each(cuCtxPopCurrent);                        \
  each(cuMemGetInfo);                           \
  each(cuMemGetAddressRange);                   \
  each(cuPointerGetAttribute);                  \
  each(cuIpcGetMemHandle);                      \
  each(cuIpcOpenMemHandle);                     \
  each(cuIpcCloseMemHandle);                    \
  each(cuMemHostRegister);                      \
  each(cuMemHostUnregister);                    \
  each(cuStreamWriteValue64);                   \
  each(cuStreamWaitValue64);                    \
  each(cuStreamGetId);                          \
  each(cuStreamIsCapturing);                    \
  each(cuMemRetainAllocationHandle);            \
  each(cuMemGetAllocationPropertiesFromHandle); \
  each(cuMemExportToShareableHandle);           \
  each(cuMemImportFromShareableHandle);         \
  each(cuMemAddressReserve);                    \
  each(cuMemAddressFree);                       \
  each(cuMemMap);                               \
  each(cuMemUnmap);                             \
  each(cuMemSetAccess);                         \
  each(cuMemRelease);                           \
  each(cuThreadExchangeStreamCaptureMode)

/// libcuda.so.1, which comes with the driver and not with the toolkit. It is loaded when first needed, so a program
/// built with a toolkit runs on machines without a driver. Only the driver is used, not libcudart: it is one library
/// for all versions of the toolkit, and its contexts, events and streams are those of the libcudart that libtorch
/// brought. Threads: any.
struct CudaDriver {
  /// Null if the machine has none, and `missing` says why.
  static const CudaDriver* load(std::string& missing);
  /// Null if nobody in this process has loaded it.
  static CUresult (*loaded_device_count())(int*);

  /// Throws DeviceError with the driver's own words unless `result` is success.
  void check(CUresult result, const char* what) const;
  std::string describe(CUresult result) const;

#define SHOAL_CUDA_MEMBER(name) decltype(&::name) name = nullptr
  // NOLINTNEXTLINE(readability-identifier-naming): the driver's own names.
  SHOAL_CUDA_FUNCTIONS(SHOAL_CUDA_MEMBER);
#undef SHOAL_CUDA_MEMBER
};

}  // namespace shoal
#endif
