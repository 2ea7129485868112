// Memory of other processes' devices that this process has opened. Not for users.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <shoal/internal/tensors/cuda/exports.h>
#include <shoal/internal/tensors/cuda/layout.h>
#include <shoal/ipc/heap.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace shoal {

/// Storages over other processes' memory. Each keeps a hold on its export and the opened base it lies in; a base is
/// opened once, however many storages lie in it. Letting go of a storage takes effect when the work that the current
/// stream had queued is done. A base is closed before the last hold on what lies in it goes. One a process, owned by
/// DeviceIpc. Threads: any. When this process dies, the driver closes what it opened, and whoever notices gives up its
/// holds.
class Imports {
 public:
  Imports();
  ~Imports();
  /// The storage of another process's export: the same object as long as one exists. Throws PeerDied if the producer is
  /// dead, DecodeError if the block is no export, DeviceError if the device is not seen here.
  c10::Storage open(DeviceHolds holds);
  /// The export by which a storage is sent on; nothing if it is not one of these.
  static bool share(const c10::Storage& storage, DeviceHolds& holds);
  /// Throws PeerDied if the memory's producer is dead. Does nothing for other storages.
  static void check_alive(const c10::Storage& storage);

  enum class Unused { kKeepAWhile, kClose };
  /// Gives up what is let go of and done with, and closes bases that nobody used since the last but one call, or all
  /// unused ones. Returns true if some of it is left for later.
  bool collect(Unused unused);

  struct Counts {
    std::size_t storages = 0;  ///< alive, or let go of and still in use by a stream
    std::size_t bases = 0;     ///< open now
    std::size_t openings = 0;  ///< ever
  };
  Counts counts() const;

 private:
  class OpenBase;
  struct Import;
  struct LetGo {
    std::unique_ptr<Import> import;
    c10::Stream stream;  // the current one at that moment
    void* event;         // what it had queued by then; none if it was being captured
  };
  using BaseKey =
      std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint64_t>;  // producer, base, pieces, bytes

  static void release(void* import);  // the storages' deleter
  void let_go(std::unique_ptr<Import> import) noexcept;
  DeviceHolds finish(Import& import);
  static bool is_done(LetGo& each);
  std::shared_ptr<OpenBase> base_for(const DeviceExportLayout& layout, const DeviceHolds& holds, c10::Device device);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::pair<const Import*, c10::weak_intrusive_ptr<c10::StorageImpl>>> by_block_;
  std::map<BaseKey, std::shared_ptr<OpenBase>> bases_;
  std::deque<LetGo> let_go_;
  std::size_t openings_ = 0, alive_ = 0;
};

}  // namespace shoal
