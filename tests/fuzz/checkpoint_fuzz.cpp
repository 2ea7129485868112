// Fuzz target: every number of a checkpoint's file is hostile. The first byte chooses a whole head, whose bytes the rest
// of the input changes (place, place, value), or none: then the input is the head. Its checksum is made right, so that it
// keeps nothing away. Reading must end in entries that lie inside the file, or in a CheckpointError.
#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace shoal;
using namespace shoal::detail;

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::vector<std::byte> whole_head(std::uint64_t& file_bytes) {
  std::vector<CheckpointEntry> entries{
      {.name = "model/weight", .type = "float32", .shape = {2, 3}, .bytes = 24},
      {.name = "model/none", .type = "int64", .shape = {0, 7}, .bytes = 0},
      {.name = "progress", .kind = CheckpointEntryKind::kValue, .type = "P", .schema = 9, .shape = {1}, .bytes = 9},
      {.name = "progress#0", .kind = CheckpointEntryKind::kBlock, .bytes = 64},
  };
  CheckpointHeader header{.step = 100, .run = 7, .rank = 1, .ranks = 2};
  std::vector<std::byte> head = encode_head(header, entries);
  file_bytes = header.file_bytes;
  return head;
}

void make_checksum_right(std::byte* head, std::size_t size) {
  std::uint64_t said = 0;
  if (size < kCheckpointHeaderBytes) return;
  std::memcpy(&said, head + 16, sizeof said);
  if (said < kCheckpointHeaderBytes || said > size) return;
  const std::uint32_t sum = checkpoint_checksum({head + 16, std::size_t(said) - 16});
  std::memcpy(head + 12, &sum, sizeof sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::uint64_t file_bytes = 0;
  std::vector<std::byte> head = whole_head(file_bytes);
  if (data[0] % 3 == 0) {
    head.resize(size - 1);
    if (size > 1) std::memcpy(head.data(), data + 1, size - 1);
    file_bytes = head.size();
    // What it says of the file's size is taken for true now and then: else no head would ever be read on.
    if (data[0] % 2 == 0 && head.size() >= kCheckpointHeaderBytes) std::memcpy(&file_bytes, head.data() + 24, 8);
  } else {
    for (std::size_t i = 1; i + 2 < size; i += 3)
      head[(data[i] | std::size_t(data[i + 1]) << 8U) % head.size()] = std::byte(data[i + 2]);
  }
  // Of its exact size: a sanitizer sees what is read behind it.
  const auto exact = std::make_unique<std::byte[]>(head.size());
  std::copy(head.begin(), head.end(), exact.get());
  make_checksum_right(exact.get(), head.size());
  try {
    const CheckpointHead parsed = parse_head({exact.get(), head.size()}, file_bytes, "fuzz");
    std::uint64_t end = parsed.header.head_bytes;
    std::set<std::string> names;
    for (const CheckpointEntry& entry : parsed.entries) {
      if (entry.offset != end || entry.bytes > file_bytes - end) fail("an entry that lies elsewhere");
      end += checkpoint_aligned(entry.bytes);
      if (end > file_bytes) fail("an entry outside the file");
      if (!names.insert(entry.name).second) fail("a name that is there twice");
    }
    if (end != file_bytes) fail("bytes that belong to nobody");
  } catch (const CheckpointError& error) {  // what it should do
    if (error.field().empty()) fail("an error that names nothing");
  }
  return 0;
}
