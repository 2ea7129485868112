#include <shoal/internal/runtime/crash/record.h>

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace shoal {
namespace {

/// The text in an array of characters that may lack its end.
template <std::size_t kSize>
std::string text_in(const char (&characters)[kSize]) {
  return std::string(characters, ::strnlen(characters, kSize));
}

CodePlace place_of(const CrashRecord& record, const CrashRecord::Frame& frame, std::uint32_t image_count) {
  if (frame.image >= image_count) return {"", {}, frame.address};
  const CrashRecord::Image& image = record.images[frame.image];
  const std::size_t id_size = std::min<std::size_t>(image.build_id_size, sizeof image.build_id);
  return {text_in(image.path), {image.build_id, image.build_id + id_size}, frame.address - image.bias};
}

std::string tail_of(const CrashRecord& record) {
  const std::uint64_t written = record.tail_written.load();
  const std::size_t kept = std::min<std::uint64_t>(written, CrashRecord::kTailBytes);
  std::string text;
  for (std::uint64_t at = written - kept; at < written; ++at) text += record.tail[at % CrashRecord::kTailBytes];
  return text;
}

}  // namespace

CrashRecordBlock CrashRecordBlock::create(ChildPhase phase) {
  Hold hold = allocate_shared(sizeof(CrashRecord));
  auto* record = reinterpret_cast<CrashRecord*>(hold.data());
  std::memset(static_cast<void*>(record), 0, offsetof(CrashRecord, frames));
  // A thread that is killed between claiming its place there and writing would leave another's words.
  std::memset(record->tail, 0, sizeof record->tail);
  record->magic = CrashRecord::kMagic;
  record->version = CrashRecord::kVersion;
  record->phase = phase;
  return CrashRecordBlock(std::move(hold));
}

CrashReport CrashRecordBlock::read() const {
  return read_crash_record(*reinterpret_cast<const CrashRecord*>(hold_.data()));
}

bool CrashRecordBlock::has_thrown() const {
  const auto& record = *reinterpret_cast<const CrashRecord*>(hold_.data());
  const ChildPhase phase = record.phase.load();
  const CrashKind kind = record.kind.load();
  if (phase != ChildPhase::kInFunction && phase != ChildPhase::kReturned) return false;
  return kind == CrashKind::kException || (kind == CrashKind::kNone && record.frame_count.load() != 0);
}

CrashReport read_crash_record(const CrashRecord& record) {
  CrashReport report;
  if (record.magic != CrashRecord::kMagic || record.version != CrashRecord::kVersion) return report;
  report.phase = std::min(record.phase.load(), ChildPhase::kProgram);
  report.kind = record.kind.load();
  report.signal = record.signal;
  report.code = record.code;
  report.address = record.address;
  report.time = record.time;
  report.type = text_in(record.type);
  report.message = text_in(record.message);
  report.stderr_tail = tail_of(record);
  const auto images = std::min(record.image_count.load(), CrashRecord::kMostImages);
  const auto frames = std::min(record.frame_count.load(), CrashRecord::kMostFrames);
  for (std::uint32_t i = 0; i < frames; ++i) report.frames.push_back(place_of(record, record.frames[i], images));
  return report;
}

CrashRecord& adopt_crash_record(const HoldRef& lent, ProcessTag parent) {
  // Never given up by this process: its last instruction may write there. Whoever reclaims its slot does.
  static Hold* hold = nullptr;
  hold = new Hold(adopt_lent(lent, parent));
  auto* record = reinterpret_cast<CrashRecord*>(hold->data());
  if (hold->size() != sizeof(CrashRecord) || record->magic != CrashRecord::kMagic ||
      record->version != CrashRecord::kVersion)
    throw DecodeError("what a started process was lent is no crash record: both have to be built with the same shoal");
  return *record;
}

}  // namespace shoal
