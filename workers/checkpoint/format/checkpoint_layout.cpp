#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>

#include <fmt/format.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <unordered_set>
#include <utility>

namespace shoal::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

constexpr std::string_view kMagic = "SHOALCKP";
// Places in the header.
constexpr std::size_t kVersionAt = 8, kChecksumAt = 12, kHeadBytesAt = 16, kFileBytesAt = 24, kStepAt = 32, kRunAt = 40,
                      kRankAt = 48, kRanksAt = 52, kEntriesAt = 56, kHeaderZeroAt = 60;
// Places in an entry.
constexpr std::size_t kNameBytesAt = 4, kTypeBytesAt = 6, kKindAt = 8, kDimensionsAt = 9, kEntryZeroAt = 10,
                      kSchemaAt = 16, kOffsetAt = 24, kBytesAt = 32;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Bytes of the index that are read one behind the other.
class IndexReader {
 public:
  IndexReader(std::span<const std::byte> head, const std::filesystem::path& path) : head_(head), path_(path) {}

  std::size_t place() const { return place_; }
  const std::byte* take(std::size_t bytes, const std::string& field) {
    if (bytes > head_.size() - place_) fail(place_, field, "the index ends within it");
    return head_.data() + std::exchange(place_, place_ + bytes);
  }
  std::string take_text(std::size_t bytes, const std::string& field) {
    return {reinterpret_cast<const char*>(take(bytes, field)), bytes};
  }
  [[noreturn]] void fail(std::size_t at, const std::string& field, const std::string& what) const {
    throw CheckpointError(path_, at, field, what);
  }

 private:
  std::span<const std::byte> head_;
  const std::filesystem::path& path_;
  std::size_t place_ = kCheckpointHeaderBytes;
};

/// The bytes that a tensor of this type and shape has. False if they cannot be counted.
bool count_bytes(const CheckpointEntry& entry, std::uint64_t& bytes) {
  bytes = checkpoint_type_bytes(entry.type);
  for (const std::int64_t size : entry.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, std::uint64_t(size), &bytes)) return false;
  return true;
}

void check_kind(const CheckpointEntry& entry, const IndexReader& index) {
  const std::string field = fmt::format("entry '{}'", entry.name);
  std::uint64_t bytes = 0;
  switch (entry.kind) {
    case CheckpointEntryKind::kTensor:
      if (checkpoint_type_bytes(entry.type) == 0)
        index.fail(entry.place, field, fmt::format("there is no element type '{}'", entry.type));
      if (!count_bytes(entry, bytes) || bytes != entry.bytes)
        index.fail(entry.place + kBytesAt, field, fmt::format("its shape and type do not make {} bytes", entry.bytes));
      return;
    case CheckpointEntryKind::kValue:
      if (entry.shape.size() != 1 || entry.shape[0] < 0 || entry.shape[0] > kMostCheckpointBlocks)
        index.fail(entry.place + kDimensionsAt, field, "it does not say how many blocks it has");
      return;
    case CheckpointEntryKind::kBlock:
      if (!entry.shape.empty()) index.fail(entry.place + kDimensionsAt, field, "a block with dimensions");
      return;
  }
  index.fail(entry.place + kKindAt, field, fmt::format("there is no kind {}", int(entry.kind)));
}

CheckpointEntry parse_entry(IndexReader& index, std::uint32_t number) {
  CheckpointEntry entry;
  entry.place = index.place();
  const std::string field = fmt::format("entry {}", number);
  const std::byte* fixed = index.take(kCheckpointEntryBytes, field);
  entry.checksum = load<std::uint32_t>(fixed);
  entry.kind = CheckpointEntryKind(load<std::uint8_t>(fixed + kKindAt));
  const std::size_t dimensions = load<std::uint8_t>(fixed + kDimensionsAt);
  entry.schema = load<std::uint64_t>(fixed + kSchemaAt);
  entry.offset = load<std::uint64_t>(fixed + kOffsetAt);
  entry.bytes = load<std::uint64_t>(fixed + kBytesAt);
  if (dimensions > kMostCheckpointDimensions)
    index.fail(entry.place + kDimensionsAt, field, fmt::format("{} dimensions", dimensions));
  if (load<std::uint16_t>(fixed + kEntryZeroAt) != 0 || load<std::uint32_t>(fixed + kEntryZeroAt + 2) != 0)
    index.fail(entry.place + kEntryZeroAt, field, "bytes that have to be 0 are not");
  const std::byte* sizes = index.take(dimensions * sizeof(std::int64_t), field);
  for (std::size_t d = 0; d < dimensions; ++d) entry.shape.push_back(load<std::int64_t>(sizes + d * 8));
  entry.name = index.take_text(load<std::uint16_t>(fixed + kNameBytesAt), field);
  entry.type = index.take_text(load<std::uint16_t>(fixed + kTypeBytesAt), field);
  if (entry.name.empty()) index.fail(entry.place + kNameBytesAt, field, "it has no name");
  check_kind(entry, index);
  return entry;
}

CheckpointHeader parse_header(std::span<const std::byte> head) {
  CheckpointHeader header;
  header.head_bytes = load<std::uint64_t>(head.data() + kHeadBytesAt);
  header.file_bytes = load<std::uint64_t>(head.data() + kFileBytesAt);
  header.step = load<std::int64_t>(head.data() + kStepAt);
  header.run = load<std::uint64_t>(head.data() + kRunAt);
  header.rank = load<std::uint32_t>(head.data() + kRankAt);
  header.ranks = load<std::uint32_t>(head.data() + kRanksAt);
  header.entries = load<std::uint32_t>(head.data() + kEntriesAt);
  return header;
}

/// Of all of the head that is not the magic word, the version, or the checksum itself.
std::uint32_t head_checksum(std::span<const std::byte> head) { return checkpoint_checksum(head.subspan(kHeadBytesAt)); }

}  // namespace

std::size_t checkpoint_type_bytes(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, std::size_t>, 19> kTypes{{
      {"bool", 1},        {"uint8", 1},         {"uint16", 2},      {"uint32", 4},         {"uint64", 8},
      {"int8", 1},        {"int16", 2},         {"int32", 4},       {"int64", 8},          {"float16", 2},
      {"bfloat16", 2},    {"float32", 4},       {"float64", 8},     {"complex32", 4},      {"complex64", 8},
      {"complex128", 16}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"float8_e8m0fnu", 1},
  }};
  const auto found = std::ranges::find(kTypes, type, &std::pair<std::string_view, std::size_t>::first);
  return found == kTypes.end() ? 0 : found->second;
}

std::uint32_t checkpoint_checksum(std::span<const std::byte> bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // crc32_z takes a null pointer for a question of its own
  return std::uint32_t(::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::vector<std::byte> encode_head(CheckpointHeader& header, std::vector<CheckpointEntry>& entries) {
  constexpr std::size_t kLongest = std::numeric_limits<std::uint16_t>::max();
  std::uint64_t bytes = kCheckpointHeaderBytes;
  for (const CheckpointEntry& entry : entries) {
    if (entry.name.empty() || entry.name.size() > kLongest || entry.type.size() > kLongest ||
        entry.shape.size() > kMostCheckpointDimensions)
      throw std::invalid_argument(fmt::format(
          "a checkpoint's entry needs a name; name and type have at most {} bytes, a tensor {} dimensions: '{}'",
          kLongest, kMostCheckpointDimensions, entry.name.substr(0, 100)));
    bytes += kCheckpointEntryBytes + entry.shape.size() * 8 + entry.name.size() + entry.type.size();
  }
  header.head_bytes = checkpoint_aligned(bytes);
  if (header.head_bytes > kLargestCheckpointHead || entries.size() > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument(fmt::format("a checkpoint of {} entries: its index may have {} MiB", entries.size(),
                                            kLargestCheckpointHead >> 20U));
  header.entries = std::uint32_t(entries.size());
  std::vector<std::byte> head(header.head_bytes);
  std::uint64_t offset = header.head_bytes;
  std::byte* at = head.data() + kCheckpointHeaderBytes;
  for (CheckpointEntry& entry : entries) {
    entry.place = std::size_t(at - head.data());
    entry.offset = offset;
    offset += checkpoint_aligned(entry.bytes);
    store(at + kNameBytesAt, std::uint16_t(entry.name.size()));
    store(at + kTypeBytesAt, std::uint16_t(entry.type.size()));
    store(at + kKindAt, std::uint8_t(entry.kind));
    store(at + kDimensionsAt, std::uint8_t(entry.shape.size()));
    store(at + kSchemaAt, entry.schema);
    store(at + kOffsetAt, entry.offset);
    store(at + kBytesAt, entry.bytes);
    at += kCheckpointEntryBytes;
    for (const std::int64_t size : entry.shape) {
      store(at, size);
      at += 8;
    }
    for (const std::string* text : {&entry.name, &entry.type})
      if (!text->empty()) {
        std::memcpy(at, text->data(), text->size());
        at += text->size();
      }
  }
  header.file_bytes = offset;
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  store(head.data() + kVersionAt, kCheckpointVersion);
  store(head.data() + kHeadBytesAt, header.head_bytes);
  store(head.data() + kFileBytesAt, header.file_bytes);
  store(head.data() + kStepAt, header.step);
  store(head.data() + kRunAt, header.run);
  store(head.data() + kRankAt, header.rank);
  store(head.data() + kRanksAt, header.ranks);
  store(head.data() + kEntriesAt, header.entries);
  return head;
}

void seal_checkpoint(std::span<std::byte> file) {
  const CheckpointHeader header = parse_header(file);
  const auto head = file.first(header.head_bytes);
  std::byte* at = head.data() + kCheckpointHeaderBytes;
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    const auto offset = load<std::uint64_t>(at + kOffsetAt), bytes = load<std::uint64_t>(at + kBytesAt);
    store(at, checkpoint_checksum(file.subspan(offset, checkpoint_aligned(bytes))));
    at += kCheckpointEntryBytes + std::size_t(load<std::uint8_t>(at + kDimensionsAt)) * 8 +
          load<std::uint16_t>(at + kNameBytesAt) + load<std::uint16_t>(at + kTypeBytesAt);
  }
  store(head.data() + kChecksumAt, head_checksum(head));
}

std::uint64_t head_bytes_of(std::span<const std::byte> header, std::uint64_t file_bytes,
                            const std::filesystem::path& path) {
  if (header.size() < kCheckpointHeaderBytes)
    throw CheckpointError(path, 0, "header", fmt::format("the file has {} bytes: it is no checkpoint", header.size()));
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0)
    throw CheckpointError(path, 0, "header", "it is no checkpoint of shoal's");
  if (const auto version = load<std::uint32_t>(header.data() + kVersionAt); version != kCheckpointVersion)
    throw CheckpointError(path, kVersionAt, "version",
                          fmt::format("{}; this shoal reads version {}", version, kCheckpointVersion));
  const auto bytes = load<std::uint64_t>(header.data() + kHeadBytesAt);
  if (bytes < kCheckpointHeaderBytes || bytes % kCheckpointAlignment != 0 || bytes > kLargestCheckpointHead)
    throw CheckpointError(path, kHeadBytesAt, "head_bytes", fmt::format("{} is no size of header and index", bytes));
  if (bytes > file_bytes)
    throw CheckpointError(path, kHeadBytesAt, "head_bytes",
                          fmt::format("header and index have {} bytes, the file {}", bytes, file_bytes));
  return bytes;
}

std::optional<std::uint64_t> run_in_header(std::span<const std::byte> header) {
  if (header.size() < kCheckpointHeaderBytes || std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0 ||
      load<std::uint32_t>(header.data() + kVersionAt) != kCheckpointVersion)
    return std::nullopt;
  return parse_header(header).run;
}

CheckpointHead parse_head(std::span<const std::byte> head, std::uint64_t file_bytes,
                          const std::filesystem::path& path) {
  head = head.first(head_bytes_of(head, std::min<std::uint64_t>(file_bytes, head.size()), path));
  const auto fail = [&](std::size_t at, const char* field, const std::string& what) {
    throw CheckpointError(path, at, field, what);
  };
  if (const auto said = load<std::uint32_t>(head.data() + kChecksumAt); said != head_checksum(head))
    fail(kChecksumAt, "checksum", "header or index are damaged");
  CheckpointHead parsed{parse_header(head), {}};
  const CheckpointHeader& header = parsed.header;
  if (header.file_bytes != file_bytes)
    fail(kFileBytesAt, "file_bytes", fmt::format("{} were written, the file has {}", header.file_bytes, file_bytes));
  if (header.step < 0) fail(kStepAt, "step", fmt::format("{}", header.step));
  if (header.rank >= header.ranks) fail(kRankAt, "rank", fmt::format("{} of {}", header.rank, header.ranks));
  if (header.entries > (head.size() - kCheckpointHeaderBytes) / kCheckpointEntryBytes)
    fail(kEntriesAt, "entries", fmt::format("{} are more than the index has room for", header.entries));
  if (load<std::uint32_t>(head.data() + kHeaderZeroAt) != 0)
    fail(kHeaderZeroAt, "header", "bytes that have to be 0 are not");

  IndexReader index(head, path);
  std::uint64_t offset = head.size();
  parsed.entries.reserve(header.entries);
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    CheckpointEntry& entry = parsed.entries.emplace_back(parse_entry(index, i));
    const std::string field = fmt::format("entry '{}'", entry.name);
    if (entry.offset != offset)
      index.fail(entry.place + kOffsetAt, field, fmt::format("it lies at {} and not at {}", entry.offset, offset));
    // The file's size bounds both, so that neither their sum nor the padding overflows.
    if (entry.bytes > file_bytes - offset || checkpoint_aligned(entry.bytes) > file_bytes - offset)
      index.fail(entry.place + kBytesAt, field, fmt::format("its {} bytes reach behind the file's end", entry.bytes));
    offset += checkpoint_aligned(entry.bytes);
  }
  if (offset != file_bytes)
    fail(kFileBytesAt, "file_bytes", fmt::format("{} bytes belong to no entry", file_bytes - offset));
  for (std::size_t at = index.place(); at < head.size(); ++at)
    if (head[at] != std::byte(0)) fail(at, "index", "bytes behind its end that are not 0");
  std::unordered_set<std::string_view> names;
  for (const CheckpointEntry& entry : parsed.entries)
    if (!names.insert(entry.name).second)
      index.fail(entry.place, fmt::format("entry '{}'", entry.name), "it is there twice");
  return parsed;
}

}  // namespace shoal::detail
