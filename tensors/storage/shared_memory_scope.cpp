#include <shoal/tensors/shared_memory_scope.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <shoal/internal/tensors/storage/known_by_address.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/internal/tensors/storage/tensor_placement.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>

namespace shoal {
namespace {

thread_local int depth = 0;
/// How many scopes of all threads there are.
std::atomic<int> depth_of_all{0};
/// relaxed, everywhere: who begins to work for a scope's thread has been told so by it, which orders more than this.
constexpr auto kToldBefore = std::memory_order_relaxed;

bool inside() { return depth != 0 || depth_of_all.load(kToldBefore) != 0; }

/// Apart from whom it asks, since most threads ask nobody, and at a thread's end it is no longer there.
thread_local bool asks = false, asks_no_more = false;
struct Asked {
  std::weak_ptr<TensorPlacement> placement;
  const TensorPlacement* which = nullptr;
  ~Asked() {
    asks = false;
    asks_no_more = true;
  }
};
thread_local Asked asked;

void free_any(void* address);

/// Stands before libtorch's own CPU allocator for the whole process, and passes everything on to it but what is asked for
/// inside a scope, or in a thread that asks a placement. Installed once, never removed: tensors know their allocator.
class ScopedAllocator final : public c10::Allocator {
 public:
  explicit ScopedAllocator(c10::Allocator* usual) : usual_(usual) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (inside()) return known_by_address(data_ptr_of(allocate_shared(bytes)));
    if (asks) {
      if (const auto placement = asked.placement.lock()) {
        c10::DataPtr memory = placement->allocate(bytes);
        return memory.get() == memory.get_context() ? std::move(memory) : known_by_address(std::move(memory));
      }
      asks = false;
    }
    return usual_->allocate(bytes);
  }
  /// Frees what raw_allocate has given, whoever was asked then, and inside a scope or not.
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  bool is_simple_data_ptr(const c10::DataPtr& memory) const override {
    return !is_known_by_address(memory) && usual_->is_simple_data_ptr(memory);
  }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }

  c10::Allocator* usual() const { return usual_; }

 private:
  c10::Allocator* usual_;
};

ScopedAllocator& installed() {
  // Never destroyed: tensors with static lifetime know it.
  static ScopedAllocator* allocator = [] {
    auto* made = new ScopedAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, std::numeric_limits<std::uint8_t>::max());
    return made;
  }();
  return *allocator;
}

void free_any(void* address) {
  if (!free_by_address(address)) installed().usual()->raw_deleter()(address);
}

}  // namespace

SharedMemoryScope::SharedMemoryScope(SharedMemoryScopeOptions options) : options_(options) {
  installed();
  if (options_.all_threads)
    depth_of_all.fetch_add(1, kToldBefore);
  else
    ++depth;
}

SharedMemoryScope::~SharedMemoryScope() {
  if (options_.all_threads)
    depth_of_all.fetch_sub(1, kToldBefore);
  else
    --depth;
}

void place_tensors(const std::shared_ptr<TensorPlacement>& placement) {
  installed();
  if (asks_no_more) return;
  asked.placement = placement;
  asked.which = placement.get();
  asks = placement != nullptr;
}

void stop_placing_tensors(const TensorPlacement& placement) {
  if (asks && asked.which == &placement) asks = false;
}

c10::Allocator* private_allocator() { return installed().usual(); }

}  // namespace shoal
