#include <shoal/internal/workers/checkpoint/write/write_shard.h>

#include <shoal/internal/workers/checkpoint/folder/checkpoint_folder.h>
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>
#include <shoal/internal/workers/checkpoint/write/atomic_file.h>

namespace shoal::detail {

void write_shard(std::span<std::byte> image, const ShardPlace& place) {
  seal_checkpoint(image);
  const ShardName name{place.step, place.rank, place.ranks};
  AtomicFile file(place.folder / shard_file_name(name));
  file.write(image);
  file.commit();
  if (place.abandons_higher) remove_abandoned_steps(place.folder, name);
  // Each rank does: the last one to write its shard makes the step complete.
  remove_old_steps(place.folder, place.keep, name);
}

}  // namespace shoal::detail
