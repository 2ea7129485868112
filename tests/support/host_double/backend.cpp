// The host double as a device of libtorch's: guard, hooks, allocator, and the few operators that tests use.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <array>

#include "tests/support/host_double/captures.h"
#include "tests/support/host_double/driver_state.h"
#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/memory.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {
namespace {

thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;
std::array<std::atomic<unsigned>, kPhysicalDevices> next_stream{};

c10::Device device_of(c10::DeviceIndex index) { return {kType, index}; }

/// What c10::cuda's guard does around recording, awaiting, timing and destroying: it sets the event's device, and then
/// the thread's own again. Unless that has been used, this makes a context on it.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) {
    require_working();
    set_device(device);
    make_context(device);
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { set_device(before_); }

 private:
  const int before_;
};

void free_storage(void* storage) { Memory::current().free(static_cast<std::byte*>(storage)); }

/// Streams 0 are the default ones. As of CUDA's, there are 32 more of a device, which are given in turn: who asks for a
/// new stream may well get one that others use.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    require_working();
    return device_of(c10::DeviceIndex(exchange_device(device.index())));
  }
  c10::Device getDevice() const override { return device_of(c10::DeviceIndex(current_device())); }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { put_device_back(device.index()); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_streams[device.index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    make_context(device.index());
    const unsigned number = next_stream.at(std::size_t(device.index()))++ % kPoolStreams;
    return c10::Stream(c10::Stream::UNSAFE, device, c10::StreamId(1 + number));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(),
                       std::exchange(current_streams[stream.device_index()], stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(Streams::key(stream)); }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (!is_working()) return;
    const OnDevice on(device);
    destroy(static_cast<Event*>(event));
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", device,
                " does not match recording stream's device index ", stream.device_index(), ".");
    const OnDevice on(stream.device_index());
    if (!*event) {
      Event* made = make_event();
      made->device = stream.device_index();
      made->is_timed = flag == c10::EventFlag::BACKEND_DEFAULT;
      *event = made;
    }
    auto& given = *static_cast<Event*>(*event);
    TORCH_CHECK(given.device == -1 || given.device == stream.device_index(),
                "invalid resource handle");  // CUDA's words
    Streams::current().record(Streams::key(stream), given);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    const OnDevice on(stream.device_index());
    Streams::current().wait(Streams::key(stream), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    require_working();
    refuse_beside_capture();
    const EventWords& words = *static_cast<Event*>(event)->words;
    return words.done >= words.recorded;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(Memory::current().device_count()); }
  bool queryStream(const c10::Stream& stream) const override {
    const c10::DeviceGuard on(stream.device());
    require_working();
    refuse_if_captured(Streams::key(stream));
    return Streams::current().idle(Streams::key(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const c10::DeviceGuard on(stream.device());
    require_working();
    refuse_if_captured(Streams::key(stream));
    refuse_beside_capture();
    Streams::current().synchronize(Streams::key(stream));
  }
  void synchronizeEvent(void* event) const override {
    require_working();
    refuse_beside_capture();
    if (event) Streams::current().synchronize(*static_cast<Event*>(event));
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex device) const override {
    const OnDevice on(device);
    TORCH_CHECK(static_cast<Event*>(from)->is_timed && static_cast<Event*>(to)->is_timed,
                "invalid resource handle");  // CUDA's words
    return 1e-6 * double(static_cast<Event*>(to)->words->nanoseconds - static_cast<Event*>(from)->words->nanoseconds);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    // Of memory that is not its own libtorch's allocator knows nothing, and says so to nobody.
    if (data.get_deleter() == &free_storage) Memory::current().record_stream(data.get(), stream.id());
  }
  // No `override`: libtorches before 2.13 do not ask.
  virtual bool isStreamCapturing(const c10::Stream& stream) const { return is_captured(Streams::key(stream)); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override { initialize(); }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return has_context(device); }
};

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = current_device();
    require_initialized();
    make_context(device);
    std::byte* storage = Memory::current().allocate(bytes, device);
    return {storage, storage, &free_storage, device_of(c10::DeviceIndex(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_storage; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Allocator allocator;

// ---------------------------------------------------------------- operators

Streams::Key stream_of(const at::Tensor& tensor) {
  require_initialized();
  make_context(tensor.device().index());
  return Streams::key(c10::impl::VirtualGuardImpl(kType).getStream(tensor.device()));
}

/// A CPU tensor over the same elements, made where the work is done. It keeps nothing alive, as a kernel does not.
std::function<at::Tensor()> on_host(const at::Tensor& tensor) {
  auto* start = static_cast<std::byte*>(tensor.storage().mutable_data()) +
                tensor.storage_offset() * std::int64_t(tensor.element_size());
  return [start, sizes = tensor.sizes().vec(), strides = tensor.strides().vec(), type = tensor.scalar_type()] {
    return at::from_blob(start, sizes, strides, at::TensorOptions(type));
  };
}

c10::Device device_or_current(std::optional<c10::Device> device) {
  at::globalContext().lazyInitDevice(kType);  // as CUDA's empty() does
  return device && device->has_index() ? *device : device_of(c10::DeviceIndex(current_device()));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

/// Between devices, and to one: queued. To the host: waits, unless it shall not. Memory of the host that is pinned is
/// read when the copy is made, other memory at once.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.device().is_cpu()) Memory::current().check_host(from.const_data_ptr(), from.nbytes());
  if (to.device().is_cpu()) Memory::current().check_host(to.const_data_ptr(), to.nbytes());
  if (from.device().is_cpu() && non_blocking && Memory::current().is_registered(from.const_data_ptr())) {
    Streams::current().enqueue(stream_of(to), [from = on_host(from), to = on_host(to)] { to().copy_(from()); });
  } else if (from.device().is_cpu()) {
    Streams::current().enqueue(stream_of(to), [from = from.clone(), to = on_host(to)] { to().copy_(from); });
  } else if (to.device().is_cpu()) {
    Streams::current().enqueue(stream_of(from), [from = on_host(from), to] { to.copy_(from()); });
    if (!non_blocking) Streams::current().synchronize(stream_of(from));
  } else {
    if (!from.is_contiguous() || !to.is_contiguous() || from.dtype() != to.dtype())
      load_kernel("copy", to.device().index());
    Streams::current().enqueue(stream_of(to), [from = on_host(from), to = on_host(to)] { to().copy_(from()); });
  }
  return to;
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  load_kernel("fill", self.device().index());
  Streams::current().enqueue(stream_of(self), [self = on_host(self), value] { self().fill_(value); });
  return self;
}

at::Tensor& zero(at::Tensor& self) { return fill(self, 0); }

at::Tensor& add_scalar(at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  load_kernel("add", self.device().index());
  Streams::current().enqueue(stream_of(self), [self = on_host(self), other, alpha] { self().add_(other, alpha); });
  return self;
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", TORCH_FN(as_strided));
  library.impl("view", TORCH_FN(view));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("fill_.Scalar", TORCH_FN(fill));
  library.impl("zero_", TORCH_FN(zero));
  library.impl("add_.Scalar", TORCH_FN(add_scalar));
}

const bool registered = [] {
  static Guard guard;
  static Hooks hooks;
  c10::impl::registerDeviceGuard(kType, &guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kType, &allocator);
  register_device_memory(kType, &Memory::current());
  return true;
}();

}  // namespace

void enqueue(int device, std::function<void()> work) {
  require_initialized();
  const c10::Device on(kType, c10::DeviceIndex(device));
  Streams::current().enqueue(Streams::key(c10::impl::VirtualGuardImpl(kType).getStream(on)), std::move(work));
}

void settle(c10::Stream stream) { Streams::current().settle(Streams::key(stream)); }

Gate::Gate(int device) {
  require_initialized();
  const c10::Device on(kType, c10::DeviceIndex(device));
  Streams::current().enqueue(
      Streams::key(c10::impl::VirtualGuardImpl(kType).getStream(on)), [] {}, [open = open_] { return open->load(); });
}

}  // namespace shoal::host_double
