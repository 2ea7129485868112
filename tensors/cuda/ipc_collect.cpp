#include <shoal/tensors/ipc_collect.h>

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>

#include <thread>

namespace shoal {

DeviceIpcStatistics device_ipc_statistics() {
  DeviceIpc& ipc = DeviceIpc::current();
  const auto exports = ipc.exports().counts();
  const auto imports = ipc.imports().counts();
  const auto words = ipc.sent_words().counts();
  const auto pinned = ipc.pinned().counts();
  return {.exports = exports.storages,
          .exported_bytes = exports.bytes,
          .exported_bases = exports.bases,
          .imports = imports.storages,
          .open_bases = imports.bases,
          .openings = imports.openings,
          .words = words.pending,
          .word_pages = words.pages + ipc.received_words().pages(),
          .pinned_blocks = pinned.blocks,
          .pinned_bytes = pinned.bytes};
}

void ipc_collect() { DeviceIpc::current().collect(); }

bool wait_until_released(std::chrono::nanoseconds timeout) {
  Exports& exports = DeviceIpc::current().exports();
  const Deadline deadline = Deadline::after(timeout);
  for (;;) {
    HolderCheck holders;
    if (!exports.collect(holders)) return true;
    exports.want_back();
    holders.reclaim_dead();
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // there is nothing to wait on: others clear words
  }
}

void check_owner_alive(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) Imports::check_alive(tensor.storage());
}

}  // namespace shoal
