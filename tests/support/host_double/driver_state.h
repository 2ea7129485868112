// What of the host double's driver this process uses: whether libtorch has started it, on which devices it has contexts,
// and whether it still works.
#pragma once

namespace shoal::host_double {

/// libtorch's lazy initialization. Before it, no kernel runs.
void initialize();
/// Throws unless the driver has been started, and works.
void require_initialized();

/// Makes a context on the device, if there is none: it takes memory there, for good.
void make_context(int device);
bool has_context(int device);

/// Throws if an error has stuck (break_device()): then nothing works in this process any more.
void require_working();
bool is_working();

/// The calling thread's current device, with c10::cuda's rules: a device without a context is only noted when it is put
/// back by a guard's end; all else makes one.
int current_device();
void set_device(int device);
int exchange_device(int device);
void put_device_back(int device);

}  // namespace shoal::host_double
