// How the kernel treats the heap's mappings: core dumps, huge pages; and sizes that no mapping could ever hold.
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
namespace fresh = shoal::test::fresh;

namespace {

/// "rd wr sh mr mw me ms nr dd nh": of the mapping with this address.
std::string flags_at(const std::byte* address) {
  std::ifstream file("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      here = begin <= std::uintptr_t(address) && std::uintptr_t(address) < end;
    if (here && line.starts_with("VmFlags: ")) return line.substr(9) + " ";
  }
  return "";
}

std::size_t asked_of(auto&& call) {
  try {
    call();
  } catch (const OutOfSharedMemory& error) {
    return error.asked();
  }
  return 0;
}

}  // namespace

TEST_CASE("mapping: no part of it goes into a core dump, and headers get no huge pages") {
  const SessionLayout& layout = SessionCore::current().layout();
  const bool has_huge = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage");
  for (const std::byte* base : {const_cast<const std::byte*>(SessionCore::current().base()), ReadOnlyView::base()}) {
    for (const std::uint64_t at : {std::uint64_t(0), layout.headers, layout.data, layout.bytes - 1})
      CHECK_THAT(flags_at(base + at), ContainsSubstring("dd "));
    if (!has_huge) continue;
    for (const std::uint64_t at : {std::uint64_t(0), layout.headers, layout.data - 1}) {
      CHECK_THAT(flags_at(base + at), ContainsSubstring("nh "));
      CHECK_THAT(flags_at(base + at), !ContainsSubstring("hg "));
    }
    for (const std::uint64_t at : {layout.data, layout.bytes - 1})
      CHECK_THAT(flags_at(base + at), ContainsSubstring("hg "));
  }
}

TEST_CASE("body: a child dumps core", "[.]") {
  fresh::run([] {
    if (::chdir(fresh::hear().c_str()) != 0) throw Error("chdir");
    const OwnFile& file = SessionCore::current().memory_file();
    Hold hold = allocate_shared(1 << 20);
    ReadOnlyView::base();
    const std::uint64_t before = *file.resident_bytes();
    Forked child([] {
      rlimit all{RLIM_INFINITY, RLIM_INFINITY};
      ::setrlimit(RLIMIT_CORE, &all);
      ::abort();
    });
    fresh::say(std::to_string(child.join()));
    fresh::say(std::to_string(*file.resident_bytes() - before));
  });
}

TEST_CASE("mapping: a core dump does not bring the heap into being") {
  const test::TemporaryFolder folder;
  FreshProcess process("body: a child dumps core", {{"SHOAL_HEAP_BYTES", "256M"}});
  process.write_line(folder.path());
  CHECK(process.read_line() == "-6");
  // Nothing but what the child wrote to the tables.
  CHECK(std::stoull(process.read_line()) < 1u << 20);
  CHECK(process.join() == 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))  // where dumps are files there
    CHECK(entry.file_size() < 200u << 20);  // the heap's mapping has 256 MiB, a sanitizer's own memory half of that
}

TEST_CASE("heap: a size beyond all address space is refused by that size") {
  const std::size_t before = heap_bytes_in_use();
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX - (2u << 20), SIZE_MAX / 2, std::size_t(1) << 63,
                                 (std::size_t(1) << 47) + 1}) {
    CAPTURE(size);
    CHECK(asked_of([&] { SharedBytes bytes(size); }) == size);
    CHECK(asked_of([&] { allocate_shared(size); }) == size);
    CHECK(asked_of([&] { ReadOnlyView::allocate(size, "x"); }) == size);
  }
  // The largest that is looked at is more than any machine's, and nothing wraps around.
  CHECK(asked_of([] { allocate_shared(std::size_t(1) << 47); }) >= std::size_t(1) << 47);
  CHECK(asked_of([] { ReadOnlyView::allocate(std::size_t(1) << 47, "x"); }) >= std::size_t(1) << 47);
  CHECK(heap_bytes_in_use() == before);
}
