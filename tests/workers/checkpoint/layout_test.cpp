// A shard's file: whatever is changed in it is noticed, and nothing outside of it is read.
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_file.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::detail;
using shoal::test::TemporaryFolder;

namespace {

using Bytes = std::vector<std::byte>;

/// A shard with a tensor, an empty one, a value and its block.
Bytes small_file() {
  std::vector<CheckpointEntry> entries{
      {.name = "model/weight", .type = "float32", .shape = {2, 3}, .bytes = 24},
      {.name = "model/none", .type = "int64", .shape = {0, 7}, .bytes = 0},
      {.name = "progress",
       .kind = CheckpointEntryKind::kValue,
       .type = "Progress",
       .schema = 99,
       .shape = {1},
       .bytes = 9},
      {.name = "progress#0", .kind = CheckpointEntryKind::kBlock, .bytes = 64},
  };
  CheckpointHeader header{.step = 100, .run = 7, .rank = 1, .ranks = 2};
  Bytes file = encode_head(header, entries);
  file.resize(header.file_bytes);
  for (const CheckpointEntry& entry : entries)
    for (std::uint64_t i = 0; i < entry.bytes; ++i) file[entry.offset + i] = std::byte(i * 7 + entry.offset);
  seal_checkpoint(file);
  return file;
}

void write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

/// The error that reading all of the file ends with; empty: none.
std::string reading(const std::string& path) {
  try {
    CheckpointFile(path).verify();
    return "";
  } catch (const CheckpointError& error) {
    CHECK(error.file() == path);
    CHECK_FALSE(error.field().empty());
    return error.what();
  }
}

/// Sets a number in the head and makes its checksum right again: damage that no checksum tells.
template <class T>
std::string after_setting(std::size_t at, T value) {
  Bytes file = small_file();
  std::memcpy(file.data() + at, &value, sizeof value);
  std::uint64_t head = 0;
  std::memcpy(&head, file.data() + 16, sizeof head);
  if (head >= 64 && head <= file.size()) {
    const std::uint32_t sum = checkpoint_checksum(std::span(file).subspan(16, head - 16));
    std::memcpy(file.data() + 12, &sum, sizeof sum);
  }
  const TemporaryFolder folder;
  write(folder.file("changed"), file);
  return reading(folder.file("changed"));
}

}  // namespace

TEST_CASE("checkpoint file: what was written is read, by name") {
  const TemporaryFolder folder;
  const Bytes bytes = small_file();
  write(folder.file("whole"), bytes);
  CHECK(reading(folder.file("whole")).empty());
  const CheckpointFile file(folder.file("whole"));
  CHECK(file.header().step == 100);
  CHECK(file.header().run == 7);
  CHECK(file.header().rank == 1);
  CHECK(file.header().ranks == 2);
  CHECK(file.entries().size() == 4);
  CHECK(file.find("model/weights") == nullptr);
  const CheckpointEntry* entry = file.find("model/weight");
  REQUIRE(entry != nullptr);
  CHECK(entry->type == "float32");
  CHECK(entry->shape == std::vector<std::int64_t>{2, 3});
  CHECK(entry->offset % 64 == 0);
  Bytes read(24);
  file.read(*entry, read);
  CHECK(std::memcmp(read.data(), bytes.data() + entry->offset, 24) == 0);
  CHECK(file.find("progress")->schema == 99);
}

TEST_CASE("checkpoint file: cut short at any length it is refused") {
  const TemporaryFolder folder;
  const Bytes bytes = small_file();
  int refused = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write(folder.file("short"), std::span(bytes).first(length));
    if (!reading(folder.file("short")).empty()) ++refused;
  }
  CHECK(refused == int(bytes.size()));
  Bytes longer = bytes;
  longer.resize(bytes.size() + 64);
  write(folder.file("longer"), longer);
  CHECK_THAT(reading(folder.file("longer")), ContainsSubstring("file_bytes"));
}

TEST_CASE("checkpoint file: any bit that is flipped is noticed, padding included") {
  const TemporaryFolder folder;
  const Bytes bytes = small_file();
  std::size_t noticed = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= std::byte(1U << (bit % 8));
    write(folder.file("flipped"), flipped);
    if (!reading(folder.file("flipped")).empty()) ++noticed;
  }
  CHECK(noticed == bytes.size() * 8);
}

TEST_CASE("checkpoint file: numbers that make no sense are named, though their checksums are right") {
  constexpr std::size_t kEntry = 64;  // the first one's place
  CHECK_THAT(after_setting(0, 'X'), ContainsSubstring("no checkpoint of shoal's"));
  CHECK_THAT(after_setting(8, 2), ContainsSubstring("version 1"));
  CHECK_THAT(after_setting(16, std::uint64_t(65)), ContainsSubstring("head_bytes"));
  CHECK_THAT(after_setting(16, std::uint64_t(1) << 40), ContainsSubstring("head_bytes"));
  CHECK_THAT(after_setting(16, std::uint64_t(1) << 20), ContainsSubstring("head_bytes"));
  CHECK_THAT(after_setting(24, std::uint64_t(1) << 62), ContainsSubstring("file_bytes"));
  CHECK_THAT(after_setting(32, std::int64_t(-1)), ContainsSubstring("step"));
  CHECK_THAT(after_setting(48, 2), ContainsSubstring("rank"));
  CHECK_THAT(after_setting(56, 1'000'000'000), ContainsSubstring("entries"));
  CHECK_THAT(after_setting(56, 3), ContainsSubstring("file_bytes"));  // the last one's data are nobody's
  CHECK_THAT(after_setting(60, 1), ContainsSubstring("header"));
  CHECK_THAT(after_setting(kEntry + 4, std::uint16_t(65535)), ContainsSubstring("the index ends within it"));
  CHECK_THAT(after_setting(kEntry + 4, std::uint16_t(0)), ContainsSubstring("no name"));
  CHECK_THAT(after_setting(kEntry + 8, std::uint8_t(9)), ContainsSubstring("no kind 9"));
  CHECK_THAT(after_setting(kEntry + 8, std::uint8_t(3)), ContainsSubstring("block with dimensions"));
  CHECK_THAT(after_setting(kEntry + 9, std::uint8_t(200)), ContainsSubstring("200 dimensions"));
  CHECK_THAT(after_setting(kEntry + 12, 1), ContainsSubstring("have to be 0"));
  CHECK_THAT(after_setting(kEntry + 24, std::uint64_t(1) << 63), ContainsSubstring("it lies at"));
  CHECK_THAT(after_setting(kEntry + 32, std::uint64_t(25)), ContainsSubstring("shape and type"));
  CHECK_THAT(after_setting(kEntry + 40, std::int64_t(-2)), ContainsSubstring("shape and type"));
  // 2^62 times 3 floats are 24 bytes, if one counts modulo 2^64.
  CHECK_THAT(after_setting(kEntry + 40, (std::int64_t(1) << 62) + 2), ContainsSubstring("shape and type"));
  // Of the block, which has no type that bounds it: its size is the file's business.
  const Bytes file = small_file();
  const std::string name = "progress#0";
  for (std::size_t at = 0; at + name.size() < file.size(); ++at)
    if (std::memcmp(file.data() + at, name.data(), name.size()) == 0) {
      CHECK_THAT(after_setting(at - 40 + 32, std::uint64_t(65)), ContainsSubstring("behind the file's end"));
      CHECK_THAT(after_setting(at - 40 + 32, std::numeric_limits<std::uint64_t>::max()),
                 ContainsSubstring("behind the file's end"));
      CHECK_THAT(after_setting(at - 40 + 32, std::uint64_t(0)), ContainsSubstring("file_bytes"));
    }
}

TEST_CASE("checkpoint file: names are read as they were written, and no other file is taken for one") {
  const std::string name = shard_file_name({123, 4, 16});
  CHECK(name == "step-000000000123.rank-4-of-16.checkpoint");
  const auto parsed = parse_shard_name(name);
  REQUIRE(parsed);
  CHECK(parsed->step == 123);
  CHECK(parsed->rank == 4);
  CHECK(parsed->ranks == 16);
  CHECK_FALSE(parsed->unfinished);
  CHECK(parse_shard_name(shard_file_name({std::numeric_limits<std::int64_t>::max(), 0, 1}))->step ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(parse_shard_name(name + ".99.0.part")->unfinished);
  const auto many = parse_shard_name(shard_file_name({7, kMostRanks - 1, kMostRanks}));
  REQUIRE(many);
  CHECK(many->rank == (1 << 20) - 1);
  CHECK(many->ranks == 1 << 20);
  for (const char* other :
       {"", "step-", "step-1.rank-0-of-1.checkpoint.bak", "step--1.rank-0-of-1.checkpoint",
        "step-1.rank-2-of-2.checkpoint", "step-1.rank-0-of-1048577.checkpoint",
        "step-99999999999999999999.rank-0-of-1.checkpoint", "step-1.rank-0-of-1.pt", "xstep-1.rank-0-of-1.checkpoint"})
    CHECK_FALSE(parse_shard_name(other));
}
