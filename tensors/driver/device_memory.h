// The interface to a device's driver that sharing its memory between processes needs.
#pragma once

#include <c10/core/Device.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shoal {

/// The device's driver refused, or there is no such device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// Names one physical device on this machine, whatever its index in a process.
struct DeviceUuid {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const DeviceUuid&) const = default;
  std::string str() const;  ///< as `nvidia-smi -L` writes it behind "GPU-" or "MIG-"
};

/// What another process needs to open an allocation. Opaque; any process of the machine may have it.
struct MemoryHandle {
  std::array<std::byte, 64> bytes{};
};

/// One kind of device: CUDA, or the host double of the tests. libtorch's device-generic interfaces do streams, events
/// within a process, and allocation; here is only what those do not have. A stream is what libtorch's guard calls its
/// native handle (for CUDA a cudaStream_t; null is the default stream of the device that is named beside it). Owned by
/// the registry, never destroyed. Threads: any. All throw DeviceError if the driver refuses; a device is named by its
/// index in this process.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  virtual const char* name() const = 0;
  virtual int device_count() = 0;
  virtual DeviceUuid uuid(int device) = 0;

  /// How another process gets at memory: a whole allocation by a handle; a piece of a segment, which tensors may reach
  /// out of into the next piece, as a file descriptor, or by a handle that holds beyond this machine (fabric).
  enum class By : std::uint8_t { kHandle, kDescriptor, kFabric };
  /// A piece of memory as the driver knows it. Tensors lie anywhere inside.
  struct Base {
    std::byte* start = nullptr;
    std::size_t bytes = 0;
    By by = By::kHandle;

    bool is_piece() const { return by != By::kHandle; }
  };
  /// The piece that `address` lies in. Throws if it cannot be shared, and says why.
  virtual Base base_of(const void* address, int device) = 0;
  /// Bytes of the device's memory that no process has. What allocators keep unused is not among them.
  virtual std::size_t free_bytes(int device) = 0;
  /// For what is shared by a handle, fabric or not.
  virtual MemoryHandle handle_of(const Base& base, int device) = 0;
  virtual Fd descriptor_of(const Base& base, int device) = 0;

  /// Makes another process's allocation readable and writable here. A process opens one at most once at a time, and
  /// never its own. `bytes` is what it must have. close() must come before its owner frees it.
  virtual std::byte* open(const MemoryHandle& handle, std::size_t bytes, int device) = 0;
  virtual void close(std::byte* opened, int device) noexcept = 0;
  struct Piece {
    int descriptor;  // -1: by the handle, a fabric one
    std::size_t bytes;
    MemoryHandle handle{};
  };
  /// Like the above, for pieces: maps them side by side.
  virtual std::byte* map(std::span<const Piece> pieces, int device) = 0;
  virtual void unmap(std::byte* mapped, std::size_t bytes, int device) noexcept = 0;

  /// Pins memory of the host, so that all devices read and write it directly. No two registrations may overlap. The
  /// device is the one whose context keeps the registration: one that the process uses anyway.
  virtual void register_host(std::byte* start, std::size_t bytes, int device) = 0;
  /// Waits until the device has done what is queued on it.
  virtual void unregister_host(std::byte* start, int device) noexcept = 0;

  /// Whether streams of the device write and await words of registered memory of the host, at the host's address.
  virtual bool has_words(int device) = 0;
  /// How many streams of this process may wait for words at a time. A stream that waits stands in one of the process's
  /// few queues on the device, and in the way of all other streams there. 0: threads wait themselves.
  virtual std::size_t most_waiting_streams(int device) = 0;
  /// That many where the process has so many queues. On an H100 with 8 all streams went on beside 4 that wait, no
  /// further one beside 8, and beside 34 calls did not return. With more than 8 nothing was tried.
  static constexpr std::size_t most_waiting_in(std::size_t queues) {
    return queues / 2 < kMostWaitingStreams ? queues / 2 : kMostWaitingStreams;
  }
  static constexpr std::size_t kMostWaitingStreams = 4;
  /// Lets the stream write the value into a word when all that is queued on it by now is done and can be seen by
  /// whoever sees the value.
  virtual void write_word(void* stream, std::uint64_t* word, std::uint64_t value, int device) = 0;
  /// Lets what is queued on the stream from now on wait until the word is `value` or greater, whoever writes it.
  virtual void wait_word(void* stream, const std::uint64_t* word, std::uint64_t value, int device) = 0;
  /// The stream's number, which no other stream of this process ever has: a handle comes back with another stream.
  virtual std::uint64_t stream_number(void* stream, int device) = 0;
  /// Whether the stream is being captured into a graph.
  virtual bool is_captured(void* stream, int device) = 0;

  /// What the calling thread's calls do to a graph that is being captured, by CUDA's rules: some break it, those about
  /// events for one, if they come from any thread, from the one that captures, or never (relaxed).
  enum class CaptureMode { kAnyThread, kThisThread, kNever };
  /// Sets it for the calling thread and returns what it was.
  virtual CaptureMode exchange_capture_mode(CaptureMode mode) noexcept { return mode; }

  /// A thread of shoal's own calls it before it asks about events and frees memory: what it does must not disturb a
  /// graph that another thread captures.
  void enter_own_thread() noexcept { (void)exchange_capture_mode(CaptureMode::kThisThread); }

  /// Whether the driver is in use in this process, so that a fork would break it. Never starts it.
  virtual bool is_initialized() noexcept = 0;

  /// The index of a device in this process. DeviceError if this process does not see it.
  int index_of(const DeviceUuid& wanted);
};

/// While it is there, what the calling thread asks the driver breaks no capture. Only for what is no part of one: events
/// and memory of shoal's own, streams that are not captured.
class BesideCaptures {
 public:
  explicit BesideCaptures(DeviceMemory& memory) noexcept
      : memory_(memory), before_(memory.exchange_capture_mode(DeviceMemory::CaptureMode::kNever)) {}
  BesideCaptures(const BesideCaptures&) = delete;
  ~BesideCaptures() { (void)memory_.exchange_capture_mode(before_); }

 private:
  DeviceMemory& memory_;
  const DeviceMemory::CaptureMode before_;
};

/// The device memory of this type, or null if this build, this libtorch or this machine has none.
DeviceMemory* find_device_memory(c10::DeviceType type);
/// Like the above; throws DeviceError, which says what is missing.
DeviceMemory& device_memory(c10::DeviceType type);
/// Registers other kinds of devices than CUDA. Never destroyed; call it in a static initializer, so that started
/// processes have it, too.
void register_device_memory(c10::DeviceType type, DeviceMemory* memory);

/// Why this process cannot be forked on account of its devices (a static text), or null. For runtime/hooks.h.
const char* device_fork_refusal();

}  // namespace shoal
