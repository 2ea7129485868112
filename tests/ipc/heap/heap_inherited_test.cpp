// What a forked child holds of its parent's blocks, and until when.
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

namespace {

/// Hold words that the calling process has on the block.
int own_words(BlockOffset block) {
  int words = 0;
  Session& session = Session::current();
  session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
    words += word.load() == session.self().word();
    return true;
  });
  return words;
}

void expect(int wanted, BlockOffset block, const char* when) {
  if (int words = own_words(block); words != wanted)
    throw std::runtime_error(std::string(when) + ": " + std::to_string(words) + " hold words, and not " +
                             std::to_string(wanted));
}

}  // namespace

TEST_CASE("heap: a forked child has one hold on a block, until the last of its copied handles goes") {
  Hold block = allocate_shared(100);
  std::vector<Hold> more;
  for (int i = 0; i < 2500; ++i) more.push_back(block.share());  // words in three chunks
  CHECK(own_words(block.block()) == 2501);
  Forked child([&] {
    const BlockOffset offset = block.block();
    expect(1, offset, "with all handles");
    more.clear();
    expect(1, offset, "with one handle left");
    Hold own = block.share();
    expect(2, offset, "with a handle of its own");
    block.release();
    expect(1, offset, "without inherited handles");
  });
  CHECK(child.join() == 0);
  Session::current().reclaim_all();
  CHECK(own_words(block.block()) == 2501);
}

TEST_CASE("heap: a forked child's child counts the handles that both of its ancestors made") {
  Hold block = allocate_shared(100);
  Hold second = block.share(), third = block.share();
  Forked child([&] {
    const BlockOffset offset = block.block();
    third.release();  // two inherited handles are left, and one hold word for them
    Hold fourth = block.share(), fifth = block.share();
    expect(3, offset, "in the child");
    Forked grandchild([&] {
      expect(1, offset, "in the grandchild");
      for (Hold* handle : {&second, &fourth, &fifth}) {
        handle->release();
        expect(1, offset, "with handles left");
      }
      block.release();
      expect(0, offset, "without any");
    });
    if (grandchild.join() != 0) throw std::runtime_error("the grandchild failed");
    expect(3, offset, "in the child afterwards");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("heap: handles from before a fork that adopted nothing use up nobody's hold") {
  Hold block = allocate_shared(100);
  const pid_t child = ::fork();  // a plain one: its copy of the handle has no hold
  if (child == 0) try {
      Hold own = block.share();
      const BlockOffset offset = block.block();
      Forked grandchild([&] {
        expect(1, offset, "in the grandchild, for its copy of the child's handle");
        block.release();
        expect(1, offset, "without the one that nobody had a hold for");
        own.release();
        expect(0, offset, "without any");
      });
      const int result = grandchild.join();
      own.release();
      SessionCore::current().leave();
      ::_exit(result);
    } catch (...) {
      ::_exit(2);
    }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(own_words(block.block()) == 1);
}

TEST_CASE("heap: a message takes a hold of its own off an inherited handle") {
  Hold block = allocate_shared(100);
  Hold second = block.share();
  Forked child([&] {
    const BlockOffset offset = block.block();
    Hold sent = Hold::from_transit(std::move(block).into_transit());
    expect(2, offset, "sent, and one inherited handle left");
    second.release();
    expect(1, offset, "sent");
  });
  CHECK(child.join() == 0);
}
