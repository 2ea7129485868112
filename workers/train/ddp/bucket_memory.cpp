#include <shoal/internal/workers/train/ddp/bucket_memory.h>

#include <ATen/ops/empty.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <functional>

namespace shoal {
namespace {

std::shared_ptr<void> reserve(std::size_t bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw SystemError("reserving addresses for buckets of gradients", errno);
  return {pages, [bytes](void* at) { ::munmap(at, bytes); }};
}

c10::DataPtr born_shared(std::size_t bytes) {
  const SharedMemoryScope scope;
  const at::Tensor made = at::empty({std::int64_t(bytes)}, at::kByte);
  return made.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, c10::Device(c10::kCPU)});
}

/// Whatever the storage has is freed.
void put(c10::StorageImpl& storage, c10::DataPtr memory) { storage.set_data_ptr_noswap(std::move(memory)); }

}  // namespace

c10::DataPtr BucketMemory::untouched(std::size_t bytes) {
  if (bytes > pages_bytes_) {
    pages_ = reserve(bytes);  // storages that have the old ones keep them
    pages_bytes_ = bytes;
  }
  auto owner = std::make_unique<std::shared_ptr<void>>(pages_);
  void* at = pages_.get();
  return {at, owner.release(), [](void* share) { delete static_cast<std::shared_ptr<void>*>(share); },
          c10::Device(c10::kCPU)};
}

void BucketMemory::empty(c10::StorageImpl& storage) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lent_, [&](const Lent& lent) { return lent.storage == &storage; });
  if (storage.nbytes() != 0) put(storage, untouched(storage.nbytes()));
}

bool BucketMemory::has_memory(const c10::StorageImpl& storage) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(lent_, [&](const Lent& lent) { return lent.storage == &storage; });
}

void BucketMemory::give(c10::StorageImpl& storage) {
  const std::size_t bytes = storage.nbytes();
  if (bytes == 0 || has_memory(storage)) return;
  const std::lock_guard lock(mutex_);
  // The smallest that is large enough.
  auto best = kept_.end();
  for (auto block = kept_.begin(); block != kept_.end(); ++block)
    if (block->bytes >= bytes && (best == kept_.end() || block->bytes < best->bytes)) best = block;
  Block block = best != kept_.end() ? std::move(*best) : Block{bytes, born_shared(bytes)};
  if (best != kept_.end()) kept_.erase(best);
  put(storage, std::move(block.memory));
  lent_.push_back({&storage, block.bytes});
}

void BucketMemory::take(c10::StorageImpl& storage) {
  const std::lock_guard lock(mutex_);
  const auto lent = std::ranges::find(lent_, &storage, &Lent::storage);
  if (lent == lent_.end()) return;
  kept_.push_back({lent->bytes, storage.set_data_ptr(untouched(storage.nbytes()))});
  lent_.erase(lent);
}

void BucketMemory::trim() {
  const std::lock_guard lock(mutex_);
  std::ranges::sort(kept_, std::ranges::greater(), &Block::bytes);
  constexpr std::size_t kAhead = 2;  // one that is filled while another is reduced
  if (kept_.size() > kAhead) kept_.erase(kept_.begin() + kAhead, kept_.end());
}

}  // namespace shoal
