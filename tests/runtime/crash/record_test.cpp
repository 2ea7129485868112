#include <shoal/internal/runtime/crash/record.h>

#include <shoal/internal/runtime/crash/stack.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>

#include <cstring>
#include <random>

#include "tests/support/catch.h"

namespace shoal {
namespace {

/// The record in the parent's block, as a child would have it.
CrashRecord& record_in(const CrashRecordBlock& block, Hold& hold) {
  hold = Hold::from_transit(block.lend());
  return *reinterpret_cast<CrashRecord*>(hold.data());
}

TEST_CASE("crash record: a new one says that nothing has happened yet") {
  const CrashReport report = CrashRecordBlock::create().read();
  CHECK(report.phase == ChildPhase::kMade);
  CHECK(report.kind == CrashKind::kNone);
  CHECK(report.frames.empty());
  CHECK(report.stderr_tail.empty());
  CHECK(report.message.empty());
}

TEST_CASE("crash record: what is written is read") {
  const auto block = CrashRecordBlock::create();
  Hold hold;
  CrashRecord& record = record_in(block, hold);
  record.phase = ChildPhase::kInFunction;
  record.kind = CrashKind::kSignal;
  record.signal = 11;
  record.address = 0x40;
  std::strcpy(record.message, "words");
  note_stack(record, nullptr);
  const CrashReport report = block.read();
  CHECK(report.phase == ChildPhase::kInFunction);
  CHECK(report.signal == 11);
  CHECK(report.address == 0x40);
  CHECK(report.message == "words");
  REQUIRE(report.frames.size() > 3);
  CHECK_THAT(report.frames[1].image, EndsWith("runtime_test"));
  CHECK(report.frames[1].build_id.size() >= 8);
}

TEST_CASE("crash record: the tail is the last bytes, wherever they begin") {
  const auto block = CrashRecordBlock::create();
  Hold hold;
  CrashRecord& record = record_in(block, hold);
  const std::uint64_t written = 3 * CrashRecord::kTailBytes + 17;
  for (std::uint64_t i = 0; i < written; ++i) record.tail[i % CrashRecord::kTailBytes] = char('a' + i % 26);
  record.tail_written = written;
  const std::string tail = block.read().stderr_tail;
  REQUIRE(tail.size() == CrashRecord::kTailBytes);
  CHECK(tail.front() == char('a' + (written - tail.size()) % 26));
  CHECK(tail.back() == char('a' + (written - 1) % 26));
}

TEST_CASE("crash record: whatever a broken child has scribbled there is read without harm") {
  const auto block = CrashRecordBlock::create();
  Hold hold;
  CrashRecord& record = record_in(block, hold);
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    auto* bytes = reinterpret_cast<unsigned char*>(&record);
    for (std::size_t i = 16; i < sizeof record; ++i) bytes[i] = static_cast<unsigned char>(random());
    const CrashReport report = block.read();
    CHECK(report.frames.size() <= CrashRecord::kMostFrames);
    CHECK(report.type.size() <= sizeof record.type);
    CHECK(report.stderr_tail.size() <= CrashRecord::kTailBytes);
    CHECK(report.phase <= ChildPhase::kReturned);
  }
  record.magic = 1;
  CHECK(block.read().kind == CrashKind::kNone);
}

}  // namespace
}  // namespace shoal
