#include <shoal/internal/ipc/read_only/read_only.h>

#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only_fault.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using test::Forked;

namespace {

Hold published(std::size_t bytes, std::byte value, std::string_view label = "thing") {
  Hold hold = ReadOnlyView::allocate(bytes, label);
  std::memset(hold.data(), int(value), bytes);
  return hold;
}

void write_through_view(const Hold& hold, std::size_t at) {
  const_cast<volatile std::byte*>(ReadOnlyView::look_at(hold).data)[at] = std::byte(1);
}

/// What the child wrote to stderr until it ended.
std::string stderr_of(const std::function<void()>& body, int& end) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  {
    Forked child([&] {
      ::dup2(ends[1], 2);
      ::close(ends[0]), ::close(ends[1]);
      ::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's
      install_read_only_fault_handler();
      body();
    });
    ::close(ends[1]);
    end = child.join();
  }
  std::string text;
  char buffer[256];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(got));
  ::close(ends[0]);
  return text;
}

}  // namespace

TEST_CASE("read-only block: its maker fills it, everybody reads it through the view, label and size come with it") {
  for (std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(64), std::size_t(5000), std::size_t(3) << 20}) {
    Hold hold = ReadOnlyView::allocate(bytes, "thing", 5);
    if (bytes != 0) std::memset(hold.data(), 7, bytes);
    const auto block = ReadOnlyView::look_at(hold);
    CHECK(ReadOnlyView::is_read_only(hold));
    CHECK(block.bytes == bytes);
    CHECK(block.flags == 5);
    CHECK(block.data - ReadOnlyView::base() == hold.data() - SessionCore::current().base());
    CHECK(std::uintptr_t(block.data) % 64 == 0);
    if (bytes != 0) CHECK((block.data[0] == std::byte(7) && block.data[bytes - 1] == std::byte(7)));
    for (std::size_t at : {std::size_t(0), bytes / 2}) {
      const ReadOnlyPlace place = find_read_only(block.data + at);
      REQUIRE(place.found);
      CHECK(place.byte == at);
      CHECK(std::string(place.label, place.label_size) == "thing");
    }
  }
  CHECK_FALSE(ReadOnlyView::is_read_only(allocate_shared(64)));
}

TEST_CASE("read-only block: a write kills the writer alone, and stderr says who wrote what and where") {
  Hold small = published(1000, std::byte(3), "tensor 'weights' [250] float");
  Hold large = published(5 << 20, std::byte(4), "tensor 'large' [5242880] byte");
  int end = 0;
  std::string text = stderr_of([&] { write_through_view(small, 999); }, end);
  CHECK(end == -SIGSEGV);
  CHECK_THAT(text, ContainsSubstring("shoal: WriteToReadOnlyTensor: process '") &&
                       ContainsSubstring("wrote to the read-only tensor 'weights' [250] float at byte 999\n"));
  text = stderr_of([&] { write_through_view(large, 3 << 20); }, end);
  CHECK(end == -SIGSEGV);
  CHECK_THAT(text, ContainsSubstring("tensor 'large' [5242880] byte at byte 3145728\n"));
  CHECK(small.data()[999] == std::byte(3));
}

TEST_CASE("read-only block: other faults, and signals that were sent, are not taken for such a write") {
  int end = 0;
  static volatile std::uintptr_t nowhere = 8;
  CHECK(stderr_of([] { *reinterpret_cast<volatile int*>(std::uintptr_t(nowhere)) = 1; }, end) == "");
  CHECK(end == -SIGSEGV);
  CHECK(stderr_of([] { ::raise(SIGSEGV); }, end) == "");
  CHECK(end == -SIGSEGV);
  // As the kernel tells of a fault whose instruction is behind already (arm64's memory tags): nothing repeats it.
  const auto told_late = [] {
    siginfo_t info{};
    info.si_signo = SIGSEGV;
    info.si_code = 8;  // SEGV_MTEAERR
    ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGSEGV, &info);
  };
  CHECK(stderr_of(told_late, end) == "");
  CHECK(end == -SIGSEGV);
  // Free memory of the view: a fault all right, but nothing has a name there.
  CHECK(stderr_of([] { const_cast<volatile std::byte*>(ReadOnlyView::base())[0] = std::byte(0); }, end) == "");
  CHECK(end == -SIGSEGV);
}

TEST_CASE("read-only block: a handler of the user's from before is called after the line is written") {
  Hold block = published(64, std::byte(3));
  int end = 0;
  const std::string text = stderr_of(
      [&] {
        struct sigaction action{};
        action.sa_handler = [](int) { ::_exit(42); };
        ::sigaction(SIGSEGV, &action, nullptr);
        install_read_only_fault_handler();  // as the first use of the view in a process does
        write_through_view(block, 5);
      },
      end);
  CHECK(end == 42);
  CHECK_THAT(text, ContainsSubstring("read-only thing at byte 5"));
}

TEST_CASE("read-only block: an observer is told before") {
  Hold block = published(64, std::byte(3));
  int end = 0;
  stderr_of(
      [&] {
        observe_read_only_faults([](int signal, siginfo_t*, void*) { ::_exit(signal == SIGSEGV ? 17 : 1); });
        write_through_view(block, 5);
      },
      end);
  CHECK(end == 17);
}

TEST_CASE(
    "read-only block: its memory is writable again in everybody's next block, and protected in the one after that") {
  const std::byte* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    Hold block = published(100'000, std::byte(round));
    if (!first) first = block.data();
    REQUIRE(block.data() == first);  // the one that was freed is the first to be used again
    CHECK(find_read_only(ReadOnlyView::look_at(block).data).found);
    const std::byte* in_view = ReadOnlyView::look_at(block).data;
    block.release();
    CHECK_FALSE(find_read_only(in_view).found);
    Hold ordinary = allocate_shared(100'000 + sizeof(ReadOnlyTrailer));
    REQUIRE(ordinary.data() == first);
    std::memset(ordinary.data(), 9, 100'000);
    CHECK(in_view[99'999] == std::byte(9));
    CHECK_FALSE(find_read_only(in_view).found);
  }
}

TEST_CASE("read-only block: readers in other processes take no memory of their own") {
  constexpr std::size_t kBytes = 8 << 20;
  Hold block = published(kBytes, std::byte(1));
  const Extents& extents = Session::current().heap().extents();
  Queue<bool> seen(4), leave(4);
  const std::uint64_t before = extents.resident();
  std::vector<std::unique_ptr<Forked>> readers;
  for (int i = 0; i < 3; ++i)
    readers.push_back(std::make_unique<Forked>([&] {
      const auto* bytes = ReadOnlyView::look_at(block).data;
      bool all = true;
      for (std::size_t at = 0; at < kBytes; at += 512) all &= bytes[at] == std::byte(1);
      seen.put(all);
      leave.get();
    }));
  for (int i = 0; i < 3; ++i) CHECK(seen.get());
  CHECK(extents.resident() < before + kBytes / 4);
  for (int i = 0; i < 3; ++i) leave.put(true);
  for (auto& reader : readers) CHECK(reader->join() == 0);
}

TEST_CASE("read-only block: what was scribbled over its end is not believed") {
  Hold block = published(1000, std::byte(1));
  const std::size_t trailer_at = block.size() - sizeof(ReadOnlyTrailer);
  auto* trailer = reinterpret_cast<ReadOnlyTrailer*>(block.data() + trailer_at);
  trailer->bytes = trailer_at + 1;
  CHECK_THROWS_AS(ReadOnlyView::look_at(block), DecodeError);
  trailer->bytes = ~0ull;
  CHECK_THROWS_AS(ReadOnlyView::look_at(block), DecodeError);
  trailer->bytes = 1000;
  trailer->magic ^= 1;
  CHECK_THROWS_AS(ReadOnlyView::look_at(block), DecodeError);
  trailer->label_size = ~0u;
  CHECK(find_read_only(ReadOnlyView::base() + (block.data() - SessionCore::current().base())).label_size ==
        ReadOnlyTrailer::kMostLabel);
  CHECK_THROWS_AS(ReadOnlyView::look_at(allocate_shared(64)), DecodeError);
}

TEST_CASE("read-only block: a label that is too long is cut") {
  Hold block = ReadOnlyView::allocate(64, std::string(500, 'x'));
  const ReadOnlyPlace place = find_read_only(ReadOnlyView::look_at(block).data);
  REQUIRE(place.label_size == ReadOnlyTrailer::kMostLabel);
  CHECK(std::string(place.label, place.label_size).ends_with("xxx..."));
}

TEST_CASE("read-only block: any address of the view, and beyond, can be asked for") {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<Hold> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(published(random() % 300'000, std::byte(1)));
  const std::uint64_t bytes = SessionCore::current().layout().bytes, data = SessionCore::current().layout().data;
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t at = i % 2 ? random() % bytes : data + random() % (64 << 20);
    found += find_read_only(ReadOnlyView::base() + at).found;
  }
  CHECK(found > 0);
  CHECK_FALSE(find_read_only(nullptr).found);
  CHECK_FALSE(find_read_only(ReadOnlyView::base() + bytes).found);
  CHECK_FALSE(find_read_only(blocks[0].data()).found);  // the writable view has no read-only addresses
}
