#include <shoal/internal/tensors/storage/storage.h>

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/internal/tensors/storage/known_by_address.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/read_only.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace shoal {
namespace {

#if !__has_include(<c10/core/StorageMaterializer.h>)
/// Whether the storage refuses to give out memory for writing. Up to 2.13 libtorch can set that and not take it back
/// (2.13 only by a swap with another storage); an explicit instantiation may name a private member.
bool& refuses_writes(c10::StorageImpl& storage);

template <auto kMember>
struct Refusal {
  friend bool& refuses_writes(c10::StorageImpl& storage) { return storage.*kMember; }
};
template struct Refusal<&c10::StorageImpl::throw_on_mutable_data_ptr_>;
#endif

void release(void* hold) { delete static_cast<Hold*>(hold); }

std::atomic<void (*)(const Hold&)> before_memory{nullptr};

c10::DataPtr data_ptr_at(const void* data, Hold&& hold) {
  auto owned = std::make_unique<Hold>(std::move(hold));
  return c10::DataPtr(const_cast<void*>(data), owned.release(), &release, c10::Device(c10::kCPU));
}

class RefusingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    throw std::invalid_argument(fmt::format(
        "resizing a tensor in shared memory, to {} bytes: it would become a private copy while other processes "
        "go on with the old one. Make it large enough before it is shared, or call shoal::unshare(tensor) "
        "first",
        bytes));
  }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }
};

#if __has_include(<c10/core/StorageMaterializer.h>)
/// libtorch calls it before it hands out a pointer to write through, from whatever operation.
void refuse_write(c10::StorageImpl* storage) {
  const ReadOnlyPlace place = find_read_only(storage->data());
  SessionCore& session = SessionCore::current();
  const ProcessTag self = session.self();
  throw WriteToReadOnlyTensor(
      fmt::format("process '{}' (pid {}) was about to write to the read-only {}: work on a clone() of it. To read its "
                  "elements use const_data_ptr(); a library that reads through data_ptr() needs it published with "
                  "allow_data_ptr",
                  session.record(self.slot()).name, session.record(self.slot()).pid.load(),
                  std::string_view(place.label, place.label_size)));
}
void set_refusal(c10::StorageImpl& storage) { storage.set_materializer(&refuse_write); }
#else
// libtorch up to 2.12 has no such call, but can refuse by itself, with a text of its own.
void set_refusal(c10::StorageImpl& storage) { storage.set_throw_on_mutable_data_ptr(); }
#endif

void make_read_only(c10::StorageImpl& storage, const ReadOnlyView::Block& block) {
  if (!(block.flags & kReadOnlyAllowsDataPtr)) set_refusal(storage);
}

}  // namespace

const Hold* shared_hold(const c10::Storage& storage) {
  if (!storage.unsafeGetStorageImpl()) return nullptr;
  const c10::DataPtr& data = *behind_address(storage.data_ptr());
  // The deleter is the mark: nothing else frees with this function.
  return data.get_deleter() == &release ? static_cast<const Hold*>(data.get_context()) : nullptr;
}

const Hold* shared_hold(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? shared_hold(tensor.storage()) : nullptr;
}

void call_before_memory(void (*call)(const Hold& block)) noexcept {
  before_memory.store(call, std::memory_order_relaxed);  // relaxed: a function, which was always there
}

c10::DataPtr data_ptr_of(Hold&& hold) {
  if (auto* call = before_memory.load(std::memory_order_relaxed)) call(hold);
  const void* data = hold.data();
  return data_ptr_at(data, std::move(hold));
}

c10::Allocator* shared_storage_allocator() {
  static RefusingAllocator allocator;
  return &allocator;
}

c10::intrusive_ptr<c10::StorageImpl> storage_of(Hold&& hold, std::size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(int64_t(bytes)),
                                               data_ptr_of(std::move(hold)), shared_storage_allocator(),
                                               /*resizable=*/true);
}

c10::intrusive_ptr<c10::StorageImpl> received_storage(Hold&& hold) {
  // relaxed: set before the block was live, which this hold says it is.
  const auto type = Session::current().heap().memory().header(hold.block()).type.load(std::memory_order_relaxed);
  if (type == BlockType::kBytes) {
    const std::size_t bytes = hold.size();
    return storage_of(std::move(hold), bytes);
  }
  if (type != BlockType::kReadOnly) throw DecodeError("a tensor from another process: its block holds no elements");
  const ReadOnlyView::Block block = ReadOnlyView::look_at(hold);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(int64_t(block.bytes)), data_ptr_at(block.data, std::move(hold)),
      shared_storage_allocator(), /*resizable=*/true);
  make_read_only(*storage, block);
  return storage;
}

void replace_memory(c10::StorageImpl& storage, c10::DataPtr memory, c10::Allocator* allocator) {
#if __has_include(<c10/core/StorageMaterializer.h>)
  storage.clear_materializer();
#else
  refuses_writes(storage) = false;  // what is asked when memory is given out is worked out anew by the next line
#endif
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_allocator(allocator);
  storage.set_resizable(true);
}

void replace_by_read_only(c10::StorageImpl& storage, Hold&& hold) {
  const ReadOnlyView::Block block = ReadOnlyView::look_at(hold);
  replace_memory(storage, data_ptr_at(block.data, std::move(hold)), shared_storage_allocator());
  make_read_only(storage, block);
}

bool is_read_only_storage(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = *behind_address(storage.data_ptr());
  return data.get_deleter() == &release && ReadOnlyView::is_read_only(*static_cast<const Hold*>(data.get_context()));
}

std::vector<std::pair<const char*, at::Tensor>> storage_parts(const at::Tensor& tensor, const char* what) {
  switch (tensor.layout()) {
    case at::kStrided:
      return {{"", tensor}};
    case at::kSparse:
      return {{"indices", tensor._indices()}, {"values", tensor._values()}};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {
          {"crow_indices", tensor.crow_indices()}, {"col_indices", tensor.col_indices()}, {"values", tensor.values()}};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {
          {"ccol_indices", tensor.ccol_indices()}, {"row_indices", tensor.row_indices()}, {"values", tensor.values()}};
    default:
      throw std::invalid_argument(
          fmt::format("{}: {} has a layout that does not lie in the shared heap as it is", what, tensor.toString()));
  }
}

at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype) {
  const c10::Device device = storage.device();
  const c10::DispatchKey key =
      device.is_cpu() ? c10::DispatchKey::CPU : c10::computeDispatchKey(dtype, c10::kStrided, device);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace shoal
