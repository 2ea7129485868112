#include <shoal/tensors/shared_memory_scope.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <shoal/internal/tensors/storage/storage.h>

#include <atomic>
#include <cstring>
#include <limits>

namespace shoal {
namespace {

thread_local int depth = 0;
/// How many scopes of all threads there are.
std::atomic<int> depth_of_all{0};
/// relaxed, everywhere: who begins to work for a scope's thread has been told so by it, which orders more than this.
constexpr auto kToldBefore = std::memory_order_relaxed;

bool inside() { return depth != 0 || depth_of_all.load(kToldBefore) != 0; }

/// Stands before libtorch's own CPU allocator for the whole process, and passes everything on to it but
/// what is asked for inside a scope. Installed once, never removed: tensors know their allocator.
class ScopedAllocator final : public c10::Allocator {
 public:
  explicit ScopedAllocator(c10::Allocator* usual) : usual_(usual) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (!inside()) return usual_->allocate(bytes);
    return data_ptr_of(allocate_shared(bytes));
  }
  // libtorch's raw_allocate needs a deleter that is the same for all: inside a scope there is none.
  c10::DeleterFnPtr raw_deleter() const override { return inside() ? nullptr : usual_->raw_deleter(); }
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

c10::Allocator* private_allocator() { return installed().usual(); }

}  // namespace shoal
