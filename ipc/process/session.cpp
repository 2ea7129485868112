#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/memory/budget.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/internal/ipc/process/made_at.h>
#include <shoal/internal/ipc/process/mapping.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/process/stack_answer.h>
#include <shoal/internal/ipc/process/trace_switch.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

namespace shoal {
namespace {

constinit std::mutex creating;

constexpr std::uint64_t kDefaultBytes = 1ull << 40;
constexpr std::uint64_t kLeastBytes = 256ull << 20;
/// Who takes one of the last free slots of the process table gives back those of the dead first.
constexpr std::uint32_t kSweepBelow = 64;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // their shadow memory makes a huge mapping costly
#else
constexpr bool kSanitized = false;
#endif

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

/// Bytes of address space that this process has mapped.
std::uint64_t mapped_now() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * std::uint64_t(::sysconf(_SC_PAGESIZE));
}

/// A third of what is left: the heap, its read-only view of the same size, and all else. If a third would be too
/// little for any heap, up to half: then read-only blocks are refused.
std::uint64_t share_of_address_space(std::uint64_t limit) {
  const std::uint64_t left = limit - std::min(limit, mapped_now());
  return std::max(left / 3, std::min(kLeastBytes, left / 2));
}

/// The reservation to try first: what the user says, or what the limits of the process leave.
std::uint64_t wanted_bytes() {
  std::uint64_t wanted = kSanitized ? 32ull << 30 : kDefaultBytes;
  if (const char* setting = std::getenv("SHOAL_HEAP_BYTES")) {
    wanted = parse_bytes(setting, "SHOAL_HEAP_BYTES");
    if (wanted < kLeastBytes)
      throw std::invalid_argument(
          fmt::format("SHOAL_HEAP_BYTES is {}: at least {} (256M) is needed", setting, kLeastBytes));
  }
  // RLIMIT_FSIZE counts a memfd's size and answers with SIGXFSZ, so it is looked at, not tried out.
  auto tighten = [&](__rlimit_resource resource, const char* name, const char* option, auto share_of) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const std::uint64_t share = share_of(limit.rlim_cur);
    if (share >= wanted) return;
    if (share < kLeastBytes)
      throw Error(
          fmt::format("{} is {}: that leaves {} bytes for the session's memory, and at least {} (256M) are needed; "
                      "raise it (ulimit {})",
                      name, limit.rlim_cur, share, kLeastBytes, option));
    log_info("{} is {}: the session's memory gets {} of address space, and not {}", name, limit.rlim_cur, share,
             wanted);
    wanted = share;
  };
  tighten(RLIMIT_FSIZE, "RLIMIT_FSIZE", "-f", [](std::uint64_t limit) { return limit / 2; });
  tighten(RLIMIT_AS, "RLIMIT_AS", "-v", &share_of_address_space);
  return wanted;
}

void plan(std::uint64_t bytes, SessionLayout& layout) {
  layout.magic = SessionLayout::kMagic;
  layout.version = SessionLayout::kVersion;
  layout.process_slots = ProcessTag::kSlotCount;
  layout.root_pid = ::getpid();
  constexpr std::uint64_t kHintBytes = kHeadersPerExtent / 8;
  std::uint64_t per_extent = kExtentBytes + kHeadersPerExtent * kHeaderBytes + kHintBytes + sizeof(ExtentRecord);
  layout.processes = 4096;
  layout.activities = layout.processes + ProcessTag::kSlotCount * sizeof(ProcessRecord);
  layout.stacks = layout.activities + ProcessTag::kSlotCount * sizeof(ActivityRecord);
  layout.names = layout.stacks + ProcessTag::kSlotCount * sizeof(StackRecords);
  layout.extents = layout.names + NameRecord::kCount * sizeof(NameRecord);
  // What the tables need besides, and a spare extent because the data starts on a 2 MiB boundary.
  layout.extent_count = (bytes - layout.extents - 3 * kExtentBytes) / per_extent;
  layout.hints = round_up(layout.extents + layout.extent_count * sizeof(ExtentRecord), 4096);
  layout.headers = round_up(layout.hints + layout.extent_count * kHintBytes, kExtentBytes);
  layout.data = layout.headers + layout.extent_count * kHeadersPerExtent * kHeaderBytes;
  layout.bytes = layout.data + layout.extent_count * kExtentBytes;
}

OwnedMapping mapping_of(int file, const SessionLayout& layout) noexcept {
  return {map_heap(file, {layout.bytes, layout.data}, MappingAccess::kWritable), Unmap{layout.bytes}};
}

void raise_slots_touched(SessionLayout& layout, std::uint32_t end) {
  std::uint32_t seen = layout.slots_touched.load();
  while (seen < end && !layout.slots_touched.compare_exchange_weak(seen, end)) continue;
}

/// For the log: "train (rank 3)". Takes no slot, since what is said may be about just that.
std::string name_in_session() {
  SessionCore& session = SessionCore::current();
  const ProcessTag self = session.self_if_known();
  if (!self) return {};
  const ProcessRecord& record = session.record(self.slot());
  std::string name(record.name, ::strnlen(record.name, sizeof record.name));
  if (record.rank >= 0) name += fmt::format(" (rank {})", record.rank);
  return name;
}

}  // namespace

std::atomic<Session*> Session::instance_{nullptr};

[[gnu::init_priority(101)]] const AtFork SessionCore::at_fork_({
    .stage = ForkStage::kSession,
    .in_child = &SessionCore::after_fork,
});

SessionCore::SessionCore(Descriptors descriptors, OwnedMapping& mapping)
    : Session(make_heap(mapping.get())),  // may throw: a bad setting
      base_(mapping.release()),
      memory_(std::make_unique<OwnFile>(Fd(descriptors.memory), "the session's memory")),
      liveness_(std::make_unique<LivenessFile>(Fd(descriptors.liveness))) {}

SessionCore& SessionCore::install(Descriptors descriptors, OwnedMapping mapping) {
  auto* installed = new SessionCore(descriptors, mapping);  // never destroyed; see the class
  instance_.store(installed, std::memory_order_release);    // R2
  SHOAL_KILL_POINT("session.install.stored");
  stack_answer::install();
  tell_others(*installed);
  return *installed;
}

void SessionCore::tell_others(SessionCore& session) noexcept {
  trace::session_word.store(&session.layout().tracing);
  detail::process_name.store(&name_in_session, std::memory_order_release);  // R1: after the instance
}

SessionCore& SessionCore::create() {
  std::lock_guard lock(creating);
  if (exists()) return current();
  SHOAL_KILL_POINT("session.create.begun");
  std::atexit([] {  // before there is one: a process that another thread forks meanwhile has this from here
    if (exists()) current().leave();
  });
  Fd file = lift(Fd(::memfd_create("shoal-heap", MFD_CLOEXEC)));
  if (!file) throw SystemError("creating the session's memory", errno);
  Fd liveness = LivenessFile::make_file();
  std::uint64_t bytes = wanted_bytes();
  OwnedMapping mapping;
  SessionLayout layout{};
  for (int error = 0;; bytes /= 2) {
    if (bytes < kLeastBytes)
      throw SystemError("reserving address space for the session's memory", error,
                        "raise RLIMIT_AS or RLIMIT_FSIZE (ulimit -v, ulimit -f)");
    plan(bytes, layout);
    if (::ftruncate(file.get(), off_t(layout.bytes)) == 0 && (mapping = mapping_of(file.get(), layout))) break;
    error = errno;
    log_warning("{} bytes of address space for the session's memory are not to be had ({}): half of it is tried", bytes,
                std::strerror(error));
  }
  auto* header = new (mapping.get()) SessionLayout;
  // Member by member: the atomics at the end start at zero, as the fresh pages are.
  std::memcpy(static_cast<void*>(header), &layout, offsetof(SessionLayout, extents_touched));
  SessionCore& session = install({file.get(), liveness.get()}, std::move(mapping));
  file.release();
  liveness.release();
  note_session_made();
  session.describe_self("root", -1);
  log_info("made a session: {} of address space for its memory, {} slots", layout.bytes, ProcessTag::kSlotCount);
  return session;
}

SessionCore& SessionCore::join(Descriptors descriptors) {
  std::lock_guard lock(creating);
  if (exists()) throw Error("this process is part of a session already");
  SessionLayout header{};
  ssize_t got = ::pread(descriptors.memory, static_cast<void*>(&header), sizeof header, 0);
  if (got != sizeof header || header.magic != SessionLayout::kMagic)
    throw Error(fmt::format("descriptor {} is not the memory of a session", descriptors.memory));
  if (header.version != SessionLayout::kVersion)
    throw Error(
        fmt::format("the session's memory has version {}, this program knows version {}: both have to be built "
                    "with the same shoal",
                    header.version, SessionLayout::kVersion));
  OwnedMapping mapping = mapping_of(descriptors.memory, header);
  if (!mapping)
    throw SystemError(fmt::format("mapping the session's memory of {} bytes of address space", header.bytes), errno,
                      "raise RLIMIT_AS, or start the root with a smaller SHOAL_HEAP_BYTES");
  for (int descriptor : {descriptors.memory, descriptors.liveness}) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return install(descriptors, std::move(mapping));
}

SessionCore::Descriptors SessionCore::descriptors() const { return {memory_->descriptor(), liveness_->descriptor()}; }

SessionCore::Descriptors SessionCore::descriptors_if_open() const noexcept {
  return {memory_->descriptor_if_open(), liveness_->file().descriptor_if_open()};
}

ProcessRecord& SessionCore::record(std::uint32_t slot) const {
  return reinterpret_cast<ProcessRecord*>(base_ + layout().processes)[slot];
}

ActivityRecord& SessionCore::activity(std::uint32_t slot) const {
  return reinterpret_cast<ActivityRecord*>(base_ + layout().activities)[slot];
}

void SessionCore::after_fork() noexcept {
  // A thread that was making the session is not here: this process makes its own.
  new (&creating) std::mutex;
  auto* session = static_cast<SessionCore*>(instance_.load());
  if (!session) return;
  // One thread, and nothing of the parent's may be acted on: not its slot, its mutexes.
  session->forked_from_ = session->self_.load();
  session->self_ = 0;
  new (&session->slot_mutex_) std::mutex;
  new (&session->reclaim_mutex_) std::mutex;
  tell_others(*session);  // the thread that had stored it may not have come to that
}

bool SessionCore::try_slot(std::uint32_t slot) {
  ProcessRecord& process = record(slot);
  auto state = ProcessRecord::state_of(process.state);
  if (state != ProcessRecord::kFree && state != ProcessRecord::kTaking) return false;
  // The lock comes first: it decides between all who want the slot, and whoever finds kTaking with the
  // lock free knows that the process that was taking it is dead.
  if (!liveness_->take(slot)) return false;
  state = ProcessRecord::state_of(process.state);
  if (state != ProcessRecord::kFree && state != ProcessRecord::kTaking) {
    liveness_->give_back(slot);
    return false;
  }
  raise_slots_touched(layout(), slot + 1);
  process.state = ProcessRecord::kTaking;
  std::uint32_t generation = process.generation.load() + 1;
  if ((generation & ProcessTag::kGenerationMask) == 0) ++generation;
  process.generation = generation;
  process.pid = ::getpid();
  process.taken_at = process_clock();
  process.pid_space = own_pid_space();
  process.left = 0;
  process.rank = -1;
  process.parent = 0;
  process.children = 0;
  process.reclaiming = 0;
  std::memset(process.name, 0, sizeof process.name);
  activity::begin(activity(slot), ProcessTag(slot, generation));
  // With the generation: a reclaimer of the slot's last process that comes late, with its CAS on the state, finds
  // another word, and does not take the living one's slot.
  process.state = ProcessRecord::alive(generation);
  self_ = ProcessTag(slot, generation).word();
  return true;
}

ProcessTag SessionCore::take_slot() {
  std::lock_guard lock(slot_mutex_);
  if (std::uint32_t word = self_.load()) return ProcessTag::from_word(word);  // another thread was first
  constexpr std::uint32_t kLast = ProcessTag::kSlotCount - 1;                 // that one stands for orphans
  for (std::uint32_t slot = 0; slot < kLast; ++slot)
    if (try_slot(slot)) {
      // The dead keep their slots until somebody looks. Without a slot one cannot look, so that is done while there
      // are some left.
      if (slot >= kLast - kSweepBelow && free_slots() < kSweepBelow) reclaim_all();
      return ProcessTag::from_word(self_.load());
    }
  throw Error(fmt::format(
      "the session's process table is full: {} processes; end some, or run what is independent in a session "
      "of its own (another `shoal run`)",
      kLast));
}

void SessionCore::describe_self(const std::string& name, int rank) {
  ProcessRecord& process = record(self().slot());
  process.rank = rank;
  std::memset(process.name, 0, sizeof process.name);
  name.copy(process.name, sizeof process.name - 1);
}

void SessionCore::leave() noexcept {
  if (std::uint32_t word = self_.load()) record(ProcessTag::from_word(word).slot()).left = 1;
}

Session& Session::create() { return SessionCore::create(); }

ProcessTag Session::take_slot() { return static_cast<SessionCore&>(*this).take_slot(); }

bool Session::is_alive(ProcessTag tag) {
  const auto& core = static_cast<const SessionCore&>(*this);
  if (!tag) return false;
  if (tag.word() == self_.load(std::memory_order_relaxed)) return true;  // its own lock is invisible to it
  ProcessRecord& process = core.record(tag.slot());
  if ((process.generation.load() & ProcessTag::kGenerationMask) != tag.generation()) return false;
  if (ProcessRecord::state_of(process.state) != ProcessRecord::kAlive) return false;
  core.layout().liveness_questions.fetch_add(1, std::memory_order_relaxed);  // relaxed: a figure
  if (core.liveness_->is_taken(tag.slot())) return true;
  // Two witnesses for a death: declaring a living process dead would hand its memory away. This process may have lost
  // the liveness file: then the lock is none.
  const bool is_unlocked = core.liveness_->file().is_open();
  if (!is_own_pid_space(process.pid_space.load())) return !is_unlocked;
  if (!process_exists(process.pid.load(), process.taken_at.load())) return false;
  // A process maps the session's memory before it takes a slot, and has lock and memory until it ends, or executes
  // another program: that has neither, and the old one's pid. If it has closed the liveness file, it has the memory.
  return !is_unlocked || !has_surely_not_mapped(process.pid.load(), *core.memory_);
}

ProcessTag SessionCore::find(std::int32_t pid) {
  for (std::uint32_t slot = 0, end = layout().slots_touched.load(); slot < end; ++slot) {
    ProcessRecord& process = record(slot);
    auto state = ProcessRecord::state_of(process.state);
    if ((state == ProcessRecord::kAlive || state == ProcessRecord::kDead) && process.pid.load() == pid)
      return ProcessTag(slot, process.generation.load());
  }
  return {};
}

std::uint32_t Session::free_slots() {
  const auto& core = static_cast<const SessionCore&>(*this);
  std::uint32_t free = 0;
  for (std::uint32_t slot = 0; slot + 1 < ProcessTag::kSlotCount; ++slot)
    free += ProcessRecord::state_of(core.record(slot).state) == ProcessRecord::kFree;
  return free;
}

}  // namespace shoal
