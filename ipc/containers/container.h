// A handle of a container's block.
#pragma once

#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/containers/layout.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <memory>

namespace shoal {

/// This process's hold on a container, which its copies share. Any thread makes, uses and drops copies. When the last
/// handle of all processes is gone, or the last process that had one is dead, the container is closed: it lets go of
/// all that it kept.
class Container {
 public:
  /// `shelves`: how many parts with a lock each; at most ContainerLayout::kMostShelves.
  static Container create(ContainerKind kind, std::uint64_t schema, std::uint32_t shelves);
  void encode(Encoder& encoder) const { encoder.write(encoder.add(*hold_)); }
  /// Throws DecodeError if the block is no container of this kind and schema.
  static Container decode(Decoder& decoder, ContainerKind kind, std::uint64_t schema);

  ContainerLayout& operator*() const { return *layout_; }
  ContainerLayout* operator->() const { return layout_; }
  BlockOffset block() const { return hold_->block(); }

 private:
  explicit Container(std::shared_ptr<Hold> hold)
      : hold_(std::move(hold)), layout_(reinterpret_cast<ContainerLayout*>(hold_->data())) {}

  std::shared_ptr<Hold> hold_;
  ContainerLayout* layout_;
};

}  // namespace shoal
