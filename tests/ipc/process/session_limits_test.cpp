// The session's address space, and where the limits of the process leave less than usual.
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/session.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
using shoal::test::kSanitized;
namespace fresh = shoal::test::fresh;
namespace fs = std::filesystem;

namespace {

void limit(int resource, std::uint64_t bytes) {
  rlimit limits{bytes, bytes};
  if (::setrlimit(__rlimit_resource_t(resource), &limits) != 0) throw Error("setrlimit");
}

std::uint64_t reserved() {
  struct stat status{};
  ::fstat(SessionCore::current().descriptors().memory, &status);
  return std::uint64_t(status.st_size);
}

/// Makes the session, uses it, and says how much address space it has.
void make_and_report() {
  const SessionLayout& layout = SessionCore::current().layout();
  if (layout.bytes != reserved()) throw Error("the layout does not say how large the memory is");
  for (std::size_t size : {100ul, 1ul << 20, 20ul << 20}) {
    Hold hold = allocate_shared(size);
    ::memset(hold.data(), 1, size);
  }
  // Its last extent can be written to as well.
  std::byte* last = SessionCore::current().base() + layout.data + (layout.extent_count - 1) * kExtentBytes;
  ::memset(last, 1, kExtentBytes);
  fresh::say(std::to_string(layout.bytes));
}

}  // namespace

TEST_CASE("body: make a session", "[.]") { fresh::run(make_and_report); }

TEST_CASE("body: make a session under RLIMIT_AS", "[.]") {
  fresh::run([] {
    limit(RLIMIT_AS, std::stoull(fresh::hear()));
    make_and_report();
  });
}

TEST_CASE("body: make a session under RLIMIT_FSIZE", "[.]") {
  fresh::run([] {
    limit(RLIMIT_FSIZE, std::stoull(fresh::hear()));
    make_and_report();
  });
}

TEST_CASE("body: say what is left of sessions that cannot be made", "[.]") {
  fresh::run([] {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    if (fresh::hear() == "one descriptor") {
      const int next = ::dup(0);
      ::close(next);
      const rlimit one_more{rlim_t(next) + 1, before.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &one_more);
    }
    std::string message;
    for (int i = 0; i < 5; ++i) try {
        Session::current();
      } catch (const std::exception& error) {
        message = error.what();
      }
    ::setrlimit(RLIMIT_NOFILE, &before);
    int left = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) left += line.find("memfd:shoal") != std::string::npos;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the listing's own
      left += fs::read_symlink(entry, gone).string().find("memfd:shoal") != std::string::npos;
    }
    fresh::say(message);
    fresh::say(std::to_string(left));
  });
}

TEST_CASE("session: one that cannot be made leaves neither mappings nor descriptors") {
  SECTION("a bad setting") {
    FreshProcess process("body: say what is left of sessions that cannot be made", {{"SHOAL_KEEP_IDLE", "lots"}});
    process.write_line("all descriptors");
    CHECK_THAT(process.read_line(), ContainsSubstring("SHOAL_KEEP_IDLE is 'lots'"));
    CHECK(process.read_line() == "0");
    CHECK(process.join() == 0);
  }
// UBSan looks at a vptr by way of a pipe: without descriptors it takes every object for a wrong one.
#ifndef __SANITIZE_ADDRESS__
  SECTION("no descriptor for the liveness file") {
    FreshProcess process("body: say what is left of sessions that cannot be made");
    process.write_line("one descriptor");
    CHECK_THAT(process.read_line(), ContainsSubstring("liveness file"));
    CHECK(process.read_line() == "0");
    CHECK(process.join() == 0);
  }
#endif
}

TEST_CASE("session: a terabyte of address space is reserved where nothing forbids it") {
  FreshProcess process("body: make a session");
  const auto bytes = std::stoull(process.read_line());
  CHECK(process.join() == 0);
  CHECK(bytes <= (kSanitized ? 32ull << 30 : 1ull << 40));
  CHECK(bytes > (kSanitized ? 31ull << 30 : 1000ull << 30));
}

TEST_CASE("session: SHOAL_HEAP_BYTES is how much is reserved, and a bad one is named") {
  {
    FreshProcess process("body: make a session", {{"SHOAL_HEAP_BYTES", "1G"}});
    const auto bytes = std::stoull(process.read_line());
    CHECK(process.join() == 0);
    CHECK(bytes <= 1u << 30);
    CHECK(bytes > 1000u << 20);
  }
  for (const char* bad : {"little", "1M"}) {
    FreshProcess process("body: make a session", {{"SHOAL_HEAP_BYTES", bad}});
    CHECK_THAT(process.read_line(), ContainsSubstring("SHOAL_HEAP_BYTES is") && ContainsSubstring(bad));
    CHECK(process.join() == 1);
  }
}

TEST_CASE("session: a bad SHOAL_KEEP_IDLE is named when the session begins") {
  FreshProcess process("body: make a session", {{"SHOAL_KEEP_IDLE", "much"}});
  CHECK_THAT(process.read_line(), ContainsSubstring("SHOAL_KEEP_IDLE is 'much'"));
  CHECK(process.join() == 1);
}

TEST_CASE("session: where address space is limited, a smaller heap is made") {
  if (kSanitized) return;  // their shadow memory alone is above any such limit
  FreshProcess process("body: make a session under RLIMIT_AS");
  process.write_line(std::to_string(4ull << 30));
  const auto bytes = std::stoull(process.read_line());
  CHECK(process.join() == 0);
  CHECK(bytes <= (4ull << 30) / 3);
  CHECK(bytes > 1ull << 30);
}

TEST_CASE("body: make a session and its read-only view under RLIMIT_AS", "[.]") {
  fresh::run([] {
    limit(RLIMIT_AS, std::stoull(fresh::hear()));
    Hold block = ReadOnlyView::allocate(100, "a block");
    block.data()[0] = std::byte(7);
    if (ReadOnlyView::look_at(block).data[0] != std::byte(7)) throw Error("another block");
    fresh::say("both");
  });
}

TEST_CASE("session: where address space is limited, the heap and its read-only view both fit") {
  if (kSanitized) return;
  for (const std::uint64_t bytes : {2ull << 30, 4ull << 30, 40ull << 30}) {
    FreshProcess process("body: make a session and its read-only view under RLIMIT_AS");
    process.write_line(std::to_string(bytes));
    CHECK(process.read_line() == "both");
    CHECK(process.join() == 0);
  }
}

TEST_CASE("session: where address space is too small for any heap, the error says what to raise") {
  if (kSanitized) return;
  FreshProcess process("body: make a session under RLIMIT_AS");
  process.write_line(std::to_string(300ull << 20));
  CHECK_THAT(process.read_line(), ContainsSubstring("RLIMIT_AS is " + std::to_string(300ull << 20)) &&
                                      ContainsSubstring("(256M)") && ContainsSubstring("ulimit -v"));
  CHECK(process.join() == 1);
}

TEST_CASE("session: where files are too small for any heap, the error says what to raise") {
  FreshProcess process("body: make a session under RLIMIT_FSIZE");
  process.write_line(std::to_string(100ull << 20));
  CHECK_THAT(process.read_line(), ContainsSubstring("RLIMIT_FSIZE is " + std::to_string(100ull << 20)) &&
                                      ContainsSubstring("(256M)") && ContainsSubstring("ulimit -f"));
  CHECK(process.join() == 1);
}

TEST_CASE("session: where file sizes are limited, a smaller heap is made, and no SIGXFSZ comes") {
  FreshProcess process("body: make a session under RLIMIT_FSIZE");
  process.write_line(std::to_string(1ull << 30));
  const std::string line = process.read_line();
  CHECK(process.join() == 0);
  CHECK(std::stoull(line) <= 512ull << 20);
}

TEST_CASE("session: when the process table is nearly full, the slots of the dead are given back") {
  SessionCore& session = SessionCore::current();
  const auto free = session.free_slots();
  // Processes that were killed and that nobody has noticed.
  pid_t dead_pid;
  {
    Forked child([] {});
    dead_pid = child.pid();
  }
  std::uint32_t left = 5, filled = 0;
  for (std::uint32_t slot = ProcessTag::kSlotCount - 2 - left; slot > 0; --slot) {
    ProcessRecord& record = session.record(slot);
    if (ProcessRecord::state_of(record.state) != ProcessRecord::kFree) continue;
    record.generation.fetch_add(1);
    record.pid = dead_pid;
    record.taken_at = 1;
    record.left = 1;
    record.state = ProcessRecord::kAlive;
    ++filled;
  }
  session.layout().slots_touched = ProcessTag::kSlotCount - 1;
  REQUIRE(session.free_slots() < 10);
  Forked child([&] {
    if (session.free_slots() < filled) throw Error("nothing was given back");
  });
  CHECK(child.join() == 0);
  session.reclaim_all();
  CHECK(session.free_slots() == free);
}
