// What this process shares of its devices, and what of others' it has. Not for users: see ipc_collect.h.
#pragma once

#include <c10/core/Storage.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/tensors/cuda/exports.h>
#include <shoal/internal/tensors/cuda/imports.h>
#include <shoal/internal/tensors/cuda/layout.h>
#include <shoal/internal/tensors/cuda/pinned_ranges.h>
#include <shoal/internal/tensors/cuda/received_words.h>
#include <shoal/internal/tensors/cuda/sent_words.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace shoal {

/// The export's layout, checked; a copy, since its maker could change it at any time. DecodeError if it is none.
DeviceExportLayout read_export(const Hold& block);

/// The exports, imports, words and pinned ranges of this process, and the thread that looks through them ten times a
/// second while there are any. One a process, made at first use, never destroyed: tensors with static lifetime let go
/// of memory late. A forked child starts with none: what it has copies of is its parent's. Threads: any.
class DeviceIpc {
 public:
  static DeviceIpc& current();

  /// What of a storage is in a message: the handle of its export, the words to wait for, the handles of its pieces.
  struct Handles {
    std::uint32_t block = SentWord::kNone;
    std::vector<SentWord> words;  // the sender's, and those that a received storage still waits for
    std::vector<std::uint32_t> offers;
  };
  Handles encode(Encoder& message, const c10::Storage& storage);
  /// Makes the calling thread's current stream wait for what the sender's had queued, and what that one waits for.
  c10::Storage decode(Decoder& message, const Handles& handles);

  Exports& exports() { return exports_; }
  Imports& imports() { return imports_; }
  SentWords& sent_words() { return sent_; }
  ReceivedWords& received_words() { return received_; }
  PinnedRanges& pinned() { return pinned_; }

  /// Whether the block is the export of a storage on a device, which this process sends or has received: a handle of
  /// memory, and not its values.
  static bool is_export(BlockOffset block);

  /// Gives up all that nobody needs any more.
  void collect();
  /// Frees storages that nobody else has, for an allocator that is about to ask for more memory and holds its lock: so it
  /// waits for no thread of this process. Asks others for what they keep in stock, and where they have so much that memory
  /// may be out without it, waits half a second for them, once for each storage: whoever has let go of a tensor gives it
  /// back with its collector's next look. Returns whether memory may have come free.
  static bool give_back_for_allocator() noexcept;
  /// Says that there is something for the collector.
  void wake() noexcept;

 private:
  friend class OnePerProcess<DeviceIpc>;
  DeviceIpc();
  void run();
  bool look_through();  // true: again, soon
  void use(c10::DeviceType type) noexcept { used_[std::size_t(type)].store(true); }

  Exports exports_;
  Imports imports_;
  PinnedRanges pinned_;
  SentWords sent_{pinned_};
  ReceivedWords received_{pinned_};
  static constexpr auto kDeviceTypes = std::size_t(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
  std::atomic<bool> used_[kDeviceTypes]{};  // kinds that the collector's thread has to enter
  std::mutex mutex_;
  std::condition_variable changed_;
  bool work_ = false;
};

}  // namespace shoal
