// What goes into a shard, and its copy in one piece of memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace shoal::detail {

/// Entries and where their bytes are. First all are added, then the shard is copied: the one moment at which tensors
/// are read. One thread.
class ShardContents {
 public:
  /// Which rank's shard it is.
  ShardContents(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// A strided tensor on any device. Throws std::invalid_argument for other layouts, quantized and expanded ones.
  void add(const std::string& name, const at::Tensor& tensor);
  /// A message of the codec. The blocks that it refers to go into the shard as well, if they are plain bytes: tensors in
  /// a value. Throws std::invalid_argument for handles of anything else (queues, locks, tensors on a device): they end
  /// with their session.
  void add(const std::string& name, const std::string& type, std::uint64_t schema, std::shared_ptr<Encoder> message);

  /// Lays the shard out. Returns how many bytes copy_to() needs.
  std::uint64_t lay_out(std::int64_t step, std::uint64_t run);
  /// Writes the whole file but its checksums, which seal_checkpoint() writes. `image`: as many bytes as lay_out() said.
  void copy_to(std::span<std::byte> image) const;

 private:
  struct Source {
    at::Tensor tensor;
    std::shared_ptr<Encoder> message;
    Hold block;
    const std::byte* data = nullptr;  // the block's
  };
  void add(CheckpointEntry entry, Source source);

  int rank_, ranks_;
  std::vector<CheckpointEntry> entries_;
  std::vector<Source> sources_;
  std::unordered_set<std::string> names_;
  std::vector<std::byte> head_;
};

/// Whether elements of an expanded tensor lie in one place: libtorch writes to none such.
bool shares_places(const at::Tensor& tensor);
/// The name of a value's block.
std::string block_name(const std::string& value, std::size_t number);
/// "float32" for at::kFloat; empty for types that checkpoints do not have.
std::string checkpoint_type_name(at::ScalarType type);

}  // namespace shoal::detail
