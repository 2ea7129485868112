// How a shard of a checkpoint lies in its file: docs/checkpoints.md has the picture. Without libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

inline constexpr std::uint32_t kCheckpointVersion = 1;
inline constexpr std::size_t kCheckpointHeaderBytes = 64;
inline constexpr std::size_t kCheckpointEntryBytes = 40;  ///< of an entry's part of fixed size
inline constexpr std::uint64_t kCheckpointAlignment = 64;
/// Header and index together: as much as a reader allocates before it has seen a checksum.
inline constexpr std::uint64_t kLargestCheckpointHead = std::uint64_t(256) << 20;
inline constexpr std::size_t kMostCheckpointDimensions = 64;
inline constexpr std::int64_t kMostCheckpointBlocks = 65535;  ///< of a value

/// What a file says of itself.
struct CheckpointHeader {
  std::uint64_t head_bytes = 0;  ///< of header and index with their padding: where the data begin
  std::uint64_t file_bytes = 0;
  std::int64_t step = 0;
  std::uint64_t run = 0;  ///< the same for all shards that belong together
  std::uint32_t rank = 0, ranks = 1;
  std::uint32_t entries = 0;
};

enum class CheckpointEntryKind : std::uint8_t {
  kTensor = 1,  ///< elements, contiguous
  kValue = 2,   ///< a message of the codec; shape: how many blocks follow
  kBlock = 3,   ///< the bytes of a block that the value before it refers to
};

/// One line of the index.
struct CheckpointEntry {
  std::string name;
  CheckpointEntryKind kind = CheckpointEntryKind::kTensor;
  std::string type = {};     ///< of a tensor's elements ("float32"); of a value, as C++ writes it
  std::uint64_t schema = 0;  ///< of a value
  std::vector<std::int64_t> shape = {};
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;    ///< in the file; encode_head() fills it in
  std::uint32_t checksum = 0;  ///< of the bytes and their padding; seal_checkpoint() fills it in
  std::size_t place = 0;       ///< of this line in the head
};

/// Bytes of an element of this type; 0 if there is no such type.
std::size_t checkpoint_type_bytes(std::string_view type);

/// CRC-32 (IEEE 802.3, zlib's), continued from `before`.
std::uint32_t checkpoint_checksum(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Up to the next multiple of kCheckpointAlignment; nothing that a file can have overflows.
constexpr std::uint64_t checkpoint_aligned(std::uint64_t bytes) {
  return (bytes + kCheckpointAlignment - 1) / kCheckpointAlignment * kCheckpointAlignment;
}

/// Header and index without checksums. Sets header's sizes and count and the entries' offsets. Throws
/// std::invalid_argument for names, types or an index that are too long.
std::vector<std::byte> encode_head(CheckpointHeader& header, std::vector<CheckpointEntry>& entries);

/// Writes the checksums into a whole file that lies in memory, made of encode_head() and the data.
void seal_checkpoint(std::span<std::byte> file);

/// Reads the header's first fields: how many bytes of the file parse_head() needs. Throws CheckpointError, which names
/// `path`. `header`: the first kCheckpointHeaderBytes of the file, or all if it has fewer.
std::uint64_t head_bytes_of(std::span<const std::byte> header, std::uint64_t file_bytes,
                            const std::filesystem::path& path);

/// The run that a file's first kCheckpointHeaderBytes say, whatever else is in them; nothing if they are no checkpoint's
/// of this version.
std::optional<std::uint64_t> run_in_header(std::span<const std::byte> header);

struct CheckpointHead {
  CheckpointHeader header;
  std::vector<CheckpointEntry> entries;
};
/// Header and index of any bytes. Afterwards all entries lie inside the file, one behind the other, under different
/// names, and sizes fit types and shapes. Throws CheckpointError.
CheckpointHead parse_head(std::span<const std::byte> head, std::uint64_t file_bytes, const std::filesystem::path& path);

}  // namespace shoal::detail
