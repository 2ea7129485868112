// A structure in a block of shared memory of its own: what the handles of ipc/ are made of.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace shoal {

/// One Layout, and this process's hold on the block that it lies in. Copies refer to the same Layout. `Layout` is
/// standard layout, begins with `magic` and `version`, and defines kMagic, kVersion and kName ("lock"). Any thread
/// makes and drops copies. When the last handle of all processes is gone, or the last process that had one is dead, the
/// block is free; no destructor runs.
template <class Layout>
class SharedPart {
  static_assert(std::is_standard_layout_v<Layout>);

 public:
  /// Makes a new Layout from its members' defaults; `prepare` completes it before anyone who walks the heap sees what
  /// it is.
  template <class Prepare>
  static SharedPart create(BlockType type, Prepare&& prepare) {
    SharedPart part(std::make_shared<Hold>(allocate_shared(sizeof(Layout))));
    new (part.layout_) Layout{};
    prepare(*part.layout_);
    // Release: whoever finds the type finds the members (reclaim).
    part.header().type.store(type, std::memory_order_release);
    return part;
  }
  static SharedPart create(BlockType type) {
    return create(type, [](Layout&) {});
  }

  void encode(Encoder& encoder) const { encoder.write(encoder.add(*hold_)); }
  /// Throws DecodeError if the block holds no Layout of this kind and version.
  static SharedPart decode(Decoder& decoder) {
    std::shared_ptr<Hold> hold = decoder.shared_hold(decoder.read<std::uint32_t>());
    if (hold->size() != sizeof(Layout))
      throw DecodeError(fmt::format("this block of shared memory is no {}", Layout::kName));
    SharedPart part(std::move(hold));
    if (part->magic != Layout::kMagic || part->version != Layout::kVersion)
      throw DecodeError(fmt::format("this block of shared memory is no {} of this version", Layout::kName));
    return part;
  }

  Layout& operator*() const { return *layout_; }
  Layout* operator->() const { return layout_; }
  BlockOffset block() const { return hold_->block(); }

 private:
  explicit SharedPart(std::shared_ptr<Hold> hold)
      : hold_(std::move(hold)), layout_(reinterpret_cast<Layout*>(hold_->data())) {}
  BlockHeader& header() const { return Session::current().heap().memory().header(block()); }

  std::shared_ptr<Hold> hold_;
  Layout* layout_;
};

}  // namespace shoal
