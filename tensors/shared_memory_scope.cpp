#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/tensors/storage.h>

#include <cstring>
#include <limits>
#include <mutex>

namespace shoal {
namespace {

thread_local int depth = 0;

/// Stands before libtorch's own CPU allocator for the whole process, and passes everything on to it but
/// what a thread inside a scope asks for. Installed once, never removed: tensors know their allocator.
class ScopedAllocator final : public c10::Allocator {
 public:
  explicit ScopedAllocator(c10::Allocator* usual) : usual_(usual) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (depth == 0) return usual_->allocate(bytes);
    return data_ptr_of(allocate_shared(bytes));
  }
  // libtorch's raw_allocate needs a deleter that is the same for all: inside a scope there is none.
  c10::DeleterFnPtr raw_deleter() const override { return depth == 0 ? usual_->raw_deleter() : nullptr; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }

 private:
  c10::Allocator* usual_;
};

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static ScopedAllocator allocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(&allocator, std::numeric_limits<std::uint8_t>::max());
  });
}

}  // namespace

SharedMemoryScope::SharedMemoryScope() {
  install();
  ++depth;
}

SharedMemoryScope::~SharedMemoryScope() { --depth; }

}  // namespace shoal
