#include <shoal/internal/ipc/observe/tracer.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/observe/heap_walk.h>
#include <shoal/internal/ipc/observe/ring_look.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <string.h>
#include <unistd.h>

#include <memory>

namespace shoal {
namespace {

std::atomic<std::uint64_t>& the_word() { return SessionCore::current().layout().tracing; }

SessionFile own_file() {
  Session::current().self();
  auto file = SessionFile::of_process(::getpid());
  if (!file) throw Error("this process is part of no session");
  return std::move(*file);
}

}  // namespace

Tracer::Tracer() : file_(own_file()) {
  SessionCore& session = SessionCore::current();
  const std::uint64_t now = activity::now();
  TraceSwitch seen{the_word().load(std::memory_order_seq_cst)};  // seq_cst: the word's changes have one order
  for (;;) {
    if (seen && !seen.is_over(now) && session.is_alive(seen.tracer())) {
      const ProcessRecord& other = session.record(seen.tracer().slot());
      throw Error(fmt::format("the session is being traced by '{}' (pid {}): one at a time",
                              std::string(other.name, ::strnlen(other.name, sizeof other.name)), other.pid.load()));
    }
    const TraceSwitch mine = TraceSwitch::make(session.self(), now + kLasts);
    // seq_cst: see Writer::make.
    if (!the_word().compare_exchange_strong(seen.word, mine.word, std::memory_order_seq_cst)) continue;
    word_ = mine.word;
    break;
  }
  if (seen && !session.is_alive(seen.tracer())) session.reclaim(seen.tracer());
}

Tracer::~Tracer() {
  turn_off();
  drop_all();
}

bool Tracer::renew() {
  const TraceSwitch next = TraceSwitch::make(Session::current().self(), activity::now() + kLasts);
  std::uint64_t expected = word_;
  // seq_cst: as all changes of the word.
  if (!the_word().compare_exchange_strong(expected, next.word, std::memory_order_seq_cst)) return false;
  word_ = next.word;
  return true;
}

void Tracer::turn_off() noexcept {
  std::uint64_t expected = word_;
  // seq_cst: as all changes of the word.
  if (expected != 0) the_word().compare_exchange_strong(expected, 0, std::memory_order_seq_cst);
  word_ = 0;
}

void Tracer::look_for_sources() {
  // The process table by read(): through the mapping, every page of it would be made.
  constexpr std::uint32_t kAtOnce = 256;
  const auto records = std::make_unique<ProcessRecord[]>(kAtOnce);
  file_.begin_look();
  for (std::uint32_t first = 0; first < ProcessTag::kSlotCount; first += kAtOnce) {
    if (!file_.read(file_.plan().processes + first * sizeof(ProcessRecord), records.get(),
                    kAtOnce * sizeof(ProcessRecord)))
      return;
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      // Never used. A free one's last process may have ended a moment ago; its record is there until the next comes.
      if (records[i].generation.load(std::memory_order_relaxed) == 0) continue;
      const ActivityRecord& activity = SessionCore::current().activity(first + i);
      // acquire: a buffer that is named here is made.
      if (const std::uint64_t block = activity.trace.load(std::memory_order_acquire)) add_source({block});
    }
  }
}

/// If the block is a buffer that its process has given this one a hold on: that hold keeps it meanwhile.
void Tracer::add_source(BlockOffset block) {
  if (sources_.contains(block.value) || !file_.is_header(block.value)) return;
  SessionCore& session = SessionCore::current();
  const BlockMemory memory = session.heap().memory();
  const BlockHeader& header = memory.header(block);
  // acquire: pairs with R1 in Heap::make_live, for the size.
  const bool live = BlockHeader::kind(header.state.load(std::memory_order_acquire)) == BlockHeader::kLive;
  // acquire: it became a trace buffer when it was made (release, in span.cpp).
  const bool is_trace = header.type.load(std::memory_order_acquire) == BlockType::kTrace;
  if (!live || !is_trace || header.size != sizeof(TraceBuffer)) return;
  HoldRef mine{};
  memory.for_each_hold(block, [&](std::uint32_t index, std::atomic<std::uint32_t>& hold) {
    if (hold.load(std::memory_order_seq_cst) != session.self().word()) return true;  // seq_cst: see Writer::make
    mine = HoldRef{block, index};
    return false;
  });
  if (!mine.block) return;
  const auto& buffer = *reinterpret_cast<const TraceBuffer*>(memory.payload(block));
  if (buffer.magic != TraceBuffer::kMagic || buffer.version != TraceBuffer::kVersion ||
      buffer.tracer != session.self().word())
    return;
  sources_[block.value] = {mine, buffer.owner, {buffer.pid, std::string(buffer.name, ::strnlen(buffer.name, 32)), 0}};
}

void Tracer::drain(Source& source, const Visit& visit) {
  SessionCore& session = SessionCore::current();
  auto& buffer = *reinterpret_cast<TraceBuffer*>(session.heap().memory().payload(source.hold.block));
  const auto tag = ProcessTag::from_word(source.owner);
  const ProcessRecord& record = session.record(tag.slot());
  // It may have got its name after its first event.
  if ((record.generation.load() & ProcessTag::kGenerationMask) == tag.generation())
    if (const std::string name(record.name, ::strnlen(record.name, sizeof record.name)); !name.empty())
      source.process.name = name;
  const std::uint64_t drained = buffer.drained.load(std::memory_order_relaxed);  // relaxed: only this process writes it
  const std::uint64_t written = buffer.written.load(std::memory_order_acquire);  // A2
  source.process.lost = buffer.lost.load(std::memory_order_relaxed);
  if (written - drained > TraceBuffer::kRecords) return;  // nonsense
  for (std::uint64_t i = drained; i != written; ++i) {
    TraceRecord copy = buffer.records[i % TraceBuffer::kRecords];
    copy.name[sizeof copy.name - 1] = '\0';
    visit(source.process, copy);
  }
  SHOAL_KILL_POINT("trace.drain.read");
  buffer.drained.store(written, std::memory_order_release);  // R1
}

bool Tracer::is_over(const Source& source) const {
  return !Session::current().is_alive(ProcessTag::from_word(source.owner));
}

bool Tracer::drain(const Visit& visit) {
  const bool going_on = renew();
  look_for_sources();
  for (auto source = sources_.begin(); source != sources_.end();) {
    // Asked first: who is dead by now writes nothing more.
    const bool over = is_over(source->second);
    drain(source->second, visit);
    if (over) {
      Session::current().heap().drop(source->second.hold);
      ended_.push_back(source->second.process);
    }
    source = over ? sources_.erase(source) : std::next(source);
  }
  return going_on;
}

void Tracer::finish(const Visit& visit) {
  turn_off();
  // Those too whose process has died, and its slot been taken by another one, between two looks.
  Session::current().heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    if (header.type.load(std::memory_order_acquire) == BlockType::kTrace) add_source(block);  // looks again
  });
  for (auto& [block, source] : sources_) drain(source, visit);
  drop_all();
}

void Tracer::drop_all() noexcept {
  for (auto& [block, source] : sources_) {
    Session::current().heap().drop(source.hold);
    ended_.push_back(source.process);
  }
  sources_.clear();
}

std::vector<TracedProcess> Tracer::processes() const {
  std::vector<TracedProcess> result = ended_;
  for (auto& [block, source] : sources_) result.push_back(source.process);
  return result;
}

std::string Tracer::name_of_wait(std::uint64_t word) const {
  file_.begin_look();
  const WaitSubject subject = subject_of_wait(file_, word);
  std::string name(subject.what);
  const auto block = subject.block != 0 ? block_of(file_, subject.block) : std::nullopt;
  if (!block || block->type != BlockType::kRing) return name;
  if (const auto queue = look_at_ring(file_, *block); queue && !queue->name.empty()) name += " " + queue->name;
  return name;
}

void join_as_observer(pid_t process, const std::string& name) {
  const std::string path = fmt::format("/proc/{}/fd", process);
  Fd found[2];
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(path.c_str()), &::closedir);
    if (!listing) throw SystemError(fmt::format("looking into {}", path), errno);
    const char* const wanted[] = {"/memfd:shoal-heap", "/memfd:shoal-liveness"};
    while (const dirent* entry = ::readdir(listing.get())) {
      char target[64];
      const ssize_t size = ::readlinkat(::dirfd(listing.get()), entry->d_name, target, sizeof target);
      for (int i = 0; i < 2; ++i)
        if (size > 0 && !found[i] && std::string_view(target, std::size_t(size)).starts_with(wanted[i]))
          found[i] = lift(Fd(::openat(::dirfd(listing.get()), entry->d_name, O_RDWR | O_CLOEXEC)));
    }
  }
  auto& [memory, liveness] = found;
  if (!memory || !liveness) throw Error(fmt::format("process {} is part of no session", process));
  SessionCore::join({memory.get(), liveness.get()});
  memory.release();
  liveness.release();
  SessionCore::current().describe_self(name, -1);
  std::atexit([] { SessionCore::current().leave(); });
}

}  // namespace shoal
