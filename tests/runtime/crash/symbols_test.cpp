#include <shoal/internal/runtime/crash/symbols.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/internal/runtime/crash/source_lines.h>
#include <shoal/ipc/fd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

namespace shoal {

constexpr int kLineOfIt = __LINE__ + 1;
__attribute__((noinline)) int function_with_a_name(int x) {
  asm volatile("");
  return x + 1;
}

namespace {

template <class F>
CodePlace place_of(F* function, std::uint64_t inside = 0) {
  const ImageFunction name = name_function(reinterpret_cast<AnyFunction>(function));
  CodePlace place{name.image, {}, name.offset + inside};
  for (std::size_t i = 0; i < name.build_id.size(); i += 2)
    place.build_id.push_back(std::uint8_t(std::stoi(name.build_id.substr(i, 2), nullptr, 16)));
  if (place.image.empty()) place.image = "/nowhere/this/program";  // as if its file were gone
  return place;
}

/// Read at once: byte by byte a sanitized program takes half a minute for itself.
std::string bytes_of(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.read(bytes.data(), std::streamsize(bytes.size())));
  return bytes;
}

TEST_CASE("symbols: functions of the program and of libraries are found by build id and offset") {
  const auto frames = symbolize({place_of(&function_with_a_name, 1), place_of(&std::abort, 1)});
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].function == "shoal::function_with_a_name(int)");
  CHECK_THAT(frames[0].file, EndsWith("tests/runtime/crash/symbols_test.cpp"));
  CHECK(frames[0].line >= kLineOfIt);
  CHECK(frames[0].line <= kLineOfIt + 3);
  CHECK(frames[1].function == "abort");
  CHECK_THAT(frames[1].text(), StartsWith("abort in /") && ContainsSubstring("libc"));
}

TEST_CASE("source lines: any bytes give some line or none, and no more harm") {
  const std::string whole = bytes_of("/proc/self/exe");
  // Not where the sections begin: programs for the machine, cut out anywhere, are what such bytes may be.
  std::mt19937 random(11);
  const std::vector<std::uint64_t> addresses{0, 1, 0x1000, 0x2345, ~std::uint64_t(0)};
  CHECK(find_source_lines({}, addresses).size() == 5);
  for (int round = 0; round < test::rounds(300); ++round) {
    std::string bytes = whole.substr(random() % (whole.size() - 5000), 1 + random() % 4999);
    // A head that is believed: of a unit that reaches to the end, of a version that there is.
    const std::uint32_t length = std::uint32_t(bytes.size()) - std::min<std::uint32_t>(4, std::uint32_t(bytes.size()));
    if (bytes.size() > 16) {
      std::memcpy(bytes.data(), &length, sizeof length);
      bytes[4] = char(2 + random() % 4);
      bytes[5] = 0;
      if (round % 2 == 0)
        std::memset(bytes.data() + (bytes[4] == 5 ? 8 : 6), 0, 4), bytes[bytes[4] == 5 ? 8 : 6] = char(random() % 64);
    }
    CHECK(find_source_lines({bytes, bytes, bytes}, addresses).size() == 5);
  }
}

TEST_CASE("symbols: another build's file is not asked, and what is in no image is its address") {
  CodePlace other = place_of(&function_with_a_name);
  other.build_id[0] ^= 1;
  const auto frames = symbolize({other, CodePlace{"", {}, 0x1234}, CodePlace{"/etc/passwd", {1, 2, 3}, 5}});
  REQUIRE(frames.size() == 3);
  for (const auto& frame : frames) CHECK(frame.function.empty());
  CHECK(frames[1].text() == "0x1234");
  CHECK(frames[2].text() == "/etc/passwd+0x5");
}

TEST_CASE("symbols: a file whose bytes are damaged gives no name or some, and no more harm") {
  CodePlace place = place_of(&std::abort, 1);  // libc: a file of some MB, where this program may have hundreds
  const std::string whole = bytes_of(place.image);
  char path[] = "/tmp/shoal-damaged-XXXXXX";
  Fd file(::mkstemp(path));
  REQUIRE(file);
  place.image = path;
  std::ofstream(path, std::ios::binary) << whole;
  CHECK(symbolize({place}).at(0).function == "abort");
  std::mt19937 random(7);
  for (int round = 0; round < test::rounds(100); ++round) {
    // The head, the section table and a cut: where all positions come from.
    std::string damaged = whole.substr(0, round % 3 == 0 ? random() % whole.size() : whole.size());
    for (int i = 0; i < 20 && damaged.size() > 64; ++i) {
      const std::size_t near_end = damaged.size() - 1 - random() % std::min<std::size_t>(damaged.size(), 3000);
      damaged[round % 2 == 0 ? 16 + random() % 48 : near_end] = char(random());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK(symbolize({place}).size() == 1);
  }
  ::unlink(path);
}

}  // namespace
}  // namespace shoal
