// What of the host double's driver this process uses: whether libtorch has started it, on which devices it has contexts,
// and whether it still works.
#pragma once

#include "tests/support/host_double/host_double.h"

namespace shoal::host_double {

/// libtorch's lazy initialization. Before it, no kernel runs. It opens what stays open, as a driver does.
void initialize();
/// Throws unless the driver has been started, and works.
void require_initialized();

/// Called before each launch of a kernel: a process loads each when it is first launched, and that waits until the device
/// has done what is queued on it.
void load_kernel(const char* name, int device);

/// Makes a context on the device, if there is none: it takes memory there, for good.
void make_context(int device);
bool has_context(int device);

/// Throws if an error has stuck (break_device()): then nothing works in this process any more.
void require_working();
/// Like the above, as the driver says it: throws DeviceError.
void require_driver();
bool is_working();
/// What refuse() says.
Refusal refused();

/// The calling thread's current device, with c10::cuda's rules: a device without a context is only noted when it is put
/// back by a guard's end; all else makes one.
int current_device();
void set_device(int device);
int exchange_device(int device);
void put_device_back(int device);

}  // namespace shoal::host_double
