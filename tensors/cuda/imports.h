// Memory of other processes' devices that this process has opened. Not for users.
#pragma once

#include <c10/core/Storage.h>
#include <shoal/internal/tensors/cuda/exports.h>
#include <shoal/internal/tensors/cuda/layout.h>
#include <shoal/internal/tensors/cuda/received_words.h>
#include <shoal/internal/tensors/cuda/stream_mark.h>
#include <shoal/ipc/heap.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace shoal {

/// Storages over other processes' memory. Each keeps a hold on its export and the opened base it lies in; a base is
/// opened once, however many storages lie in it. Letting go of a storage takes effect when the work that the current
/// stream had queued is done. A base that no storage lies in is idle: it stays open for a while, with a hold on what lay
/// in it last, because closing it waits for all that is queued on the device. It is closed before that hold goes. One a
/// process, owned by DeviceIpc. Threads: any. When this process dies, the driver closes what it opened, and whoever
/// notices gives up its holds.
class Imports {
 public:
  Imports();
  ~Imports();
  /// The storage of another process's export: the same object as long as one exists. Throws PeerDied if the producer is
  /// dead, DecodeError if the block is no export, DeviceError if the device is not seen here.
  c10::Storage open(DeviceHolds holds);
  /// What goes along where one of these storages is sent on: its export, and the words that streams were told to wait
  /// for when it was received.
  struct Shared {
    DeviceHolds holds;
    std::vector<ReceivedWords::Awaited> awaited;
  };
  /// Nothing if the storage is not one of these. Throws PeerDied if the producer is dead.
  std::optional<Shared> share(const c10::Storage& storage);
  /// Says that a stream was told to wait for a word before it uses the storage. Keeps each word once. Does nothing for other
  /// storages: their memory ends with this process.
  void note_awaited(const c10::Storage& storage, ReceivedWords::Awaited awaited);
  /// Whether the block is the export of one of these storages.
  bool has(BlockOffset block) const;
  /// Throws PeerDied if the memory's producer is dead. Does nothing for other storages.
  static void check_alive(const c10::Storage& storage);

  using Clock = std::chrono::steady_clock;
  /// How long a base stays open idle, and how many do, with how many bytes of other processes' storages: those kept for
  /// the bases' sake.
  static constexpr std::chrono::seconds kIdle{5};
  static constexpr std::size_t kMostIdle = 64, kMostIdleBytes = 256u << 20;

  /// Gives up what is let go of and done with, and closes bases that have been idle for kIdle by `now` (Clock's max: all
  /// idle ones), are too many, or whose process is dead or wants its memory back. Waits for the device if it closes
  /// any. Returns true if some of it is left for later.
  bool collect(Clock::time_point now);

  struct Counts {
    std::size_t storages = 0;  ///< alive, or let go of and still in use by a stream
    std::size_t bases = 0;     ///< open now
    std::size_t openings = 0;  ///< ever
  };
  Counts counts() const;

 private:
  struct Base;
  struct Import;
  struct LetGo {
    std::unique_ptr<Import> import;
    StreamMark mark;  // of the stream that was current at that moment
  };
  using BaseKey =
      std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint64_t>;  // producer, base, pieces, bytes
  using Bases = std::map<BaseKey, std::unique_ptr<Base>>;
  using Lock = std::unique_lock<std::mutex>;

  static void release(void* import);  // the storages' deleter
  void let_go(std::unique_ptr<Import> import) noexcept;
  DeviceHolds finish(Import& import);
  void finish_some(Lock& lock, std::vector<DeviceHolds>& given_up);
  Base* open_base(Lock& lock, const BaseKey& key, const DeviceExportLayout& layout, const DeviceHolds& holds,
                  c10::Device device);
  void close(Lock& lock, const std::vector<Bases::iterator>& closing, std::vector<DeviceHolds>& given_up);
  std::vector<Bases::iterator> to_close(Clock::time_point now);

  std::mutex collecting_;     // one collects at a time, and waits for the device
  mutable std::mutex mutex_;  // held around no call of a driver: one that waits for the device would stop all receiving
  std::condition_variable changed_;  // a base was opened or closed
  std::unordered_map<std::uint64_t, std::pair<const Import*, c10::weak_intrusive_ptr<c10::StorageImpl>>> by_block_;
  Bases bases_;
  std::deque<LetGo> let_go_;
  std::size_t openings_ = 0, alive_ = 0;
};

}  // namespace shoal
