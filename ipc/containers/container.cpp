#include <shoal/internal/ipc/containers/container.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/shelf.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/block_name.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <new>

namespace shoal {
namespace {

const char* name_of(ContainerKind kind) {
  switch (kind) {
    case ContainerKind::kDict:
      return "Dict";
    case ContainerKind::kList:
      return "List";
    case ContainerKind::kNamespace:
      return "Namespace";
    case ContainerKind::kArena:
      return "Arena";
    case ContainerKind::kNone:
      break;
  }
  return "container";
}

std::uint32_t shelves_of(const ContainerLayout& layout) {
  return std::min(layout.shelves, ContainerLayout::kMostShelves);
}

/// Nobody has a handle any more, so the locks are nobody's, or those of the dead.
void close_container(Heap& heap, BlockOffset block) noexcept {
  auto& layout = *reinterpret_cast<ContainerLayout*>(heap.memory().payload(block));
  for (std::uint32_t i = 0; i < shelves_of(layout); ++i) {
    Shelf shelf(heap, block, layout, i);
    shelf.settle();
    shelf.empty();
    SHOAL_KILL_POINT("container.close.shelf");
  }
}

}  // namespace

Container Container::create(ContainerKind kind, std::uint64_t schema, std::uint32_t shelves) {
  Container container(std::make_shared<Hold>(allocate_shared(ContainerLayout::bytes(shelves))));
  BlockHeader& header = Session::current().heap().memory().header(container.block());
  ContainerLayout& layout = *new (container.layout_) ContainerLayout{};
  layout.magic = ContainerLayout::kMagic;
  layout.version = ContainerLayout::kVersion;
  layout.schema = schema;
  layout.kind = kind;
  layout.shelves = shelves;
  layout.owner = block_name(container.block(), header);
  for (std::uint32_t i = 0; i < shelves; ++i) new (layout.shelf(i)) ShelfLayout{};
  // Release: whoever finds the type finds the layout (close_container, by a reclaimer).
  header.type.store(BlockType::kContainer, std::memory_order_release);
  return container;
}

Container Container::decode(Decoder& decoder, ContainerKind kind, std::uint64_t schema) {
  std::shared_ptr<Hold> hold = decoder.shared_hold(decoder.read<std::uint32_t>());
  const BlockHeader& header = Session::current().heap().memory().header(hold->block());
  if (header.type != BlockType::kContainer) throw DecodeError("this block of shared memory is no container");
  Container container(std::move(hold));
  if (container->magic != ContainerLayout::kMagic || container->version != ContainerLayout::kVersion)
    throw DecodeError("this container was made by another version of shoal");
  if (container->kind != kind)
    throw DecodeError(fmt::format("this is a {}, and no {}", name_of(container->kind), name_of(kind)));
  if (container->schema != schema)
    throw DecodeError(
        fmt::format("this {} has other types: schema {:016x}, here {:016x}", name_of(kind), container->schema, schema));
  return container;
}

constinit const BlockKind kContainerKind{
    .close = &close_container,
    .holder_crashed =
        [](std::byte* payload) {
          auto& layout = *reinterpret_cast<ContainerLayout*>(payload);
          layout.crashes.fetch_add(1);
          for (std::uint32_t i = 0; i < shelves_of(layout); ++i) layout.shelf(i)->changed.wake_all_for_the_dead();
        },
    .wait_name =
        [](std::uint64_t place) {
          const bool for_key =
              (place - sizeof(ContainerLayout)) % sizeof(ShelfLayout) == offsetof(ShelfLayout, changed);
          return for_key ? "key" : "lock";
        },
};

}  // namespace shoal
