// Fuzz target: every number of a tar archive is hostile, and of its index, too. The first byte chooses an archive with all
// kinds of headers, whose bytes the rest of the input changes (place, place, value) with checksums made right, or none: then
// the input is the archive. Reading it must end in files that lie inside the archive, or in a DatasetError; and so must the
// header of an array that the input changes.
#include <shoal/internal/workers/tar/format/npy_header.h>
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/internal/workers/tar/format/tar_sample.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
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

using Bytes = std::vector<std::uint8_t>;

void put(Bytes& archive, const std::string& text) {
  archive.insert(archive.end(), text.begin(), text.end());
  archive.resize(tar_blocks(archive.size()));
}

void add(Bytes& archive, const std::string& name, const std::string& contents, char type = '0') {
  const auto header = tar_header(name, contents.size(), type);
  put(archive, {header.begin(), header.end()});
  put(archive, contents);
}

Bytes whole_archive() {
  Bytes archive;
  add(archive, "folder/", "", '5');
  add(archive, "folder/1.jpg", "picture");
  add(archive, "folder/1.cls", "7");
  add(archive, "././@LongLink", "folder/2.jpg", 'L');
  add(archive, "cut", "picture");
  put(archive, tar_headers(std::string(130, 'k') + ".txt", 3));
  put(archive, "abc");
  add(archive, "pax_global_header", "13 comment=x\n", 'g');
  add(archive, "3.json", "{}");
  archive.resize(archive.size() + 2 * kTarBlock);
  return archive;
}

/// Else hardly anything would get past them.
void correct_sums(Bytes& archive) {
  for (std::size_t at = 0; at + kTarBlock <= archive.size(); at += kTarBlock) {
    if (std::memcmp(archive.data() + at + 257, "ustar", 5) != 0) continue;
    unsigned sum = 8 * ' ';
    for (std::size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? 0 : archive[at + i];
    char octal[9];
    std::snprintf(octal, sizeof octal, "%06o", sum);
    std::memcpy(archive.data() + at + 148, octal, 7);
  }
}

/// The bytes lie in the archive, and reading them is well: a sanitizer looks on.
void read(std::span<const std::uint8_t> archive, std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  if (bytes.data() < archive.data() || bytes.data() + bytes.size() > archive.data() + archive.size())
    fail("a file outside the archive");
  unsigned sum = 0;
  for (const std::uint8_t byte : bytes) sum += byte;
  volatile unsigned seen = sum;
  (void)seen;
}

void read_sample(std::span<const std::uint8_t> archive, std::uint64_t begin, std::uint64_t end) try {
  const TarParts sample = read_tar_sample(archive, "fuzz", begin, end);
  if (sample.parts.empty()) fail("a sample without files");
  for (const TarPart& part : sample.parts) read(archive, part.bytes);
} catch (const DatasetError&) {  // what it should do
}

/// An array whose header begins as NumPy writes it, and goes on as the input says.
void read_array(std::span<const std::uint8_t> input) try {
  std::string text(kNpyMagic);
  text += {'\1', '\0', '\x76', '\0'};
  text += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  text.resize(kNpyMagic.size() + 4 + 0x76, ' ');
  for (std::size_t i = 0; i + 1 < input.size(); i += 2) text[input[i] % text.size()] = char(input[i + 1]);
  text.append(input.begin(), input.end());
  const auto exact = std::make_unique<std::uint8_t[]>(text.size());
  std::copy(text.begin(), text.end(), exact.get());
  const std::span<const std::uint8_t> bytes(exact.get(), text.size());
  const NpyArray array = parse_npy_header(bytes, "fuzz");
  read(bytes, array.elements);
  if (array.code.size() < 2) fail("a type without a size");
} catch (const DatasetError&) {  // what it should do
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Bytes kArchive = whole_archive();
  if (size == 0) return 0;
  Bytes archive = data[0] % 2 == 0 ? kArchive : Bytes(data + 1, data + size);
  if (data[0] % 2 == 0) {
    for (std::size_t i = 1; i + 2 < size; i += 3)
      archive[(data[i] | std::size_t(data[i + 1]) << 8U) % archive.size()] = data[i + 2];
    correct_sums(archive);
    if (size % 3 == 2) archive.resize(archive.size() * data[size - 1] / 256);
  }
  // Of its exact size: a sanitizer sees what is read behind it.
  const auto exact = std::make_unique<std::uint8_t[]>(archive.size());
  std::copy(archive.begin(), archive.end(), exact.get());
  const std::span<const std::uint8_t> bytes(exact.get(), archive.size());
  try {
    TarMembers members(bytes, "fuzz");
    while (const auto member = members.next()) read(bytes, member->bytes);
    const TarPlaces places = find_tar_samples(bytes, "fuzz");
    const FileStamp stamp{bytes.size(), 1};
    const auto index = store_tar_index(places, stamp);
    if (load_tar_index(index, stamp) != places) fail("an index that is not what was stored");
    for (std::size_t i = 0; i + 1 < places.size(); ++i) read_sample(bytes, places[i], places[i + 1]);
  } catch (const DatasetError&) {  // what it should do
  }
  // As an index may say that is whole and wrong; and the input as an index.
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    const std::uint64_t begin = data[i] * std::uint64_t(size % 7 == 0 ? 512 : 100);
    read_sample(bytes, begin, begin + data[i + 1] * std::uint64_t{512});
  }
  (void)load_tar_index({data, size}, {size, 1});
  read_array({data, size});
  return 0;
}
