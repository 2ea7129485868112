// A device that is made of host memory, for tests of what is done with devices if there is none.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

/// The double is libtorch's PrivateUse1 device and a shoal::DeviceMemory, and is as strict as CUDA: work is queued on
/// streams and runs later; an allocation of another process is opened by a handle, never in its own process, and must be
/// closed as often as it was opened, before its owner frees it (the owner aborts otherwise); closing it, unregistering
/// memory of the host and freeing an allocation wait for all that is queued on the device; a stream that waits for a word
/// waits for ever if the process dies that was to write it, and the word's memory stays registered meanwhile; what is
/// opened through a process that died cannot be; a kernel that is launched for the first time waits for the device; a
/// stream that is captured may be asked nothing. docs/device-memory.md has the whole list, each with its test. The
/// switches below are for what depends on the machine. Linked into a program, it is there; it takes nothing before it is
/// used.
namespace shoal::host_double {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kPhysicalDevices = 4;
constexpr int kPoolStreams = 32;   // of a device, beside its default stream
constexpr int kMostEvents = 4000;  // of a process
constexpr int kQueues = 8;         // of a process on a device, unless said

/// Which physical devices this process sees, in which order: its CUDA_VISIBLE_DEVICES. All unless said.
void set_visible(std::vector<int> devices);

/// Allocations from now on are made of pieces that are shared by descriptors, or not again.
void use_expandable_segments(bool on);

/// Pieces are shared by fabric handles from now on, or by descriptors again.
void use_fabric_handles(bool on);

/// Whether each storage is an allocation of its own, which begins inside of what the driver takes from the system
/// (PYTORCH_NO_CUDA_MEMORY_CACHING=1).
void use_suballocations(bool on);

/// How much allocations of this process may take together (those that are not made of pieces).
void limit_memory(std::size_t bytes);

/// On which devices, by its own numbers, this process has contexts.
std::vector<int> contexts();

/// From now on nothing works any more, as after an illegal access of a kernel's: each call throws, and what may not
/// throw does nothing.
void break_device();

/// Bytes in live storages of this process, and of all its allocations.
std::size_t bytes_in_storages();
std::size_t bytes_of_allocations();
/// Waits for all streams and frees allocations without storages.
void empty_cache();
/// Threads of this process that wait for a device at the moment, since they close, unmap, unregister or free.
int waiting_for_device();

struct Counts {
  int openings = 0;                  // ever
  int open = 0;                      // now
  int registrations = 0;             // of host memory, ever
  std::size_t registered_bytes = 0;  // now
  int events = 0;                    // now
};
Counts counts();

/// Whether streams can write and await words (DeviceMemory::has_words). They can unless said.
void allow_words(bool allowed);
/// How often a stream was told to wait for one.
int words_awaited();

/// How many hardware queues this process has on each device (CUDA_DEVICE_MAX_CONNECTIONS): where so many streams wait for
/// words, no other one works on.
void set_queues(int queues);

/// What the driver refuses from now on, though it had said that it can: to register memory, or to queue words.
enum class Refusal { kNothing, kRegistrations, kWords };
void refuse(Refusal what);

/// What a device still does with words that a killed process had queued: nothing, so that whoever awaits them waits for
/// ever; all; or it writes the one before what is awaited after a survivor has written that.
enum class AfterDeath { kNothing, kWritesAll, kWritesLate };
/// Says so of one process, for waits of this one that are queued from now on. Nothing unless said.
void set_after_death(pid_t process, AfterDeath what);

/// Puts work on the calling thread's current stream of the device. Throws before libtorch has started the double, as the
/// other functions do that look into it.
void enqueue(int device, std::function<void()> work);
/// Waits until the stream has nothing to do, or is waiting for something itself.
void settle(c10::Stream stream);

/// Of a capture: in which threads a question about an event breaks it. Of a thread: whose captures its questions break.
using CaptureMode = DeviceMemory::CaptureMode;

/// Says that a stream is being captured into a graph, as long as it is there; one at a time. Nothing is captured.
class Capture {
 public:
  explicit Capture(c10::Stream stream, CaptureMode mode = CaptureMode::kAnyThread);
  Capture(const Capture&) = delete;
  ~Capture();
  /// Whether somebody has asked what breaks it.
  bool is_broken() const;
};

/// Stops the calling thread's current stream of a device until it is opened.
class Gate {
 public:
  explicit Gate(int device);
  Gate(const Gate&) = delete;
  ~Gate() { open(); }
  void open() { *open_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace shoal::host_double
