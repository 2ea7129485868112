#include <shoal/internal/ipc/names/names.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <string.h>

#include <new>
#include <stdexcept>

namespace shoal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The table is locked for microseconds, unless its holder is stopped.
constexpr seconds kPatience{10};
constexpr milliseconds kReclaimersPatience{100};

void check_key(const std::string& key) {
  if (key.empty() || key.size() >= sizeof NameRecord::key || key.find('\0') != std::string::npos)
    throw std::invalid_argument(
        fmt::format("the key '{}' cannot be published: give 1 to {} characters", key, sizeof NameRecord::key - 1));
}

/// What a message in a publication holds becomes this process's again, and is let go.
void release(SessionCore& session, const HoldRef& publication) {
  const BlockMemory memory = session.heap().memory();
  auto& layout = *reinterpret_cast<PublicationLayout*>(memory.payload(publication.block));
  for (std::uint64_t i = 0; i < layout.handles; ++i) {
    HoldRef ref;
    std::memcpy(&ref, layout.message() + Encoder::handles_at(layout.size) + i * sizeof ref, sizeof ref);
    Hold::from_transit(ref).release();
    SHOAL_KILL_POINT("names.release.handle");
  }
  Hold::from_transit(publication).release();
}

/// One more hold of this process on a block that somebody is known to hold.
Hold hold_of(SessionCore& session, BlockOffset block) {
  return Hold::from_transit(session.heap().add_hold(block, session.self().transit_word()));
}

/// Every Session is a SessionCore.
Names names_of(Session& session) { return Names(static_cast<SessionCore&>(session)); }

}  // namespace

/// The table's lock, for as long as the object lives; or not, if it could not be had in time.
class Names::Locked {
 public:
  Locked(SessionCore& session, Deadline deadline) : session_(session), word_(session.layout().names_lock) {
    const std::uint32_t self = session.self().word();
    for (;;) {
      std::uint32_t holder = 0;
      // acquire: what the last holder changed is seen (its release is in the destructor).
      if (word_.compare_exchange_strong(holder, self, std::memory_order_acquire)) break;
      // Another thread of this process may be the holder: it lives as long as this one.
      if (!session.is_alive(ProcessTag::from_word(holder))) {
        // acquire: as far as the dead one got.
        if (word_.compare_exchange_strong(holder, self, std::memory_order_acquire)) break;
        continue;
      }
      if (deadline.passed()) return;
      futex_wait(word_, holder, deadline.left(milliseconds(10)));
    }
    locked_ = true;
    SHOAL_KILL_POINT("names.locked");
  }
  ~Locked() {
    if (!locked_) return;
    word_.store(0, std::memory_order_release);  // release: what was changed under it goes before
    futex_wake(word_, 1);                       // whether somebody sleeps is not noted: this is rare enough
  }
  Locked(const Locked&) = delete;

  explicit operator bool() const { return locked_; }
  void must() const {
    if (locked_) return;
    const ProcessTag holder = ProcessTag::from_word(word_.load());
    throw TimeoutError(fmt::format("the session's table of names is locked by process {}, which does not go on",
                                   session_.record(holder.slot()).pid.load()));
  }

 private:
  SessionCore& session_;
  std::atomic<std::uint32_t>& word_;
  bool locked_ = false;
};

NameRecord& Names::record(std::uint32_t index) const {
  return reinterpret_cast<NameRecord*>(session_.base() + session_.layout().names)[index];
}

NameRecord* Names::find_record(const std::string& key) const {
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i)
    if (record(i).owner.load() != 0 && key == record(i).key) return &record(i);
  return nullptr;
}

void Names::publish(const std::string& key, std::uint64_t schema, Encoder& message) {
  check_key(key);
  // All holds of the publication are in transit in this process's name: they are its message's, until taken back.
  Hold block = allocate_shared(sizeof(PublicationLayout) + message.total());
  auto* layout = new (block.data())
      PublicationLayout{PublicationLayout::kMagic, schema, message.bytes().size(), message.handles().size()};
  message.copy_to(layout->message());
  for (bool swept = false;;) {
    ProcessTag in_the_way;
    bool full = false;
    {
      Locked locked(session_, Deadline::after(kPatience));
      locked.must();
      NameRecord* place = find_record(key);
      HoldRef old;
      if (place) {
        in_the_way = ProcessTag::from_word(place->owner.load());
        if (in_the_way == session_.self()) {
          old = place->publication;
          place->owner = 0;
          in_the_way = {};
        } else if (session_.is_alive(in_the_way)) {
          const ProcessRecord& owner = session_.record(in_the_way.slot());
          throw std::invalid_argument(
              fmt::format("the key '{}' is published by process {} ({}) already: choose another one, or unpublish it "
                          "there",
                          key, owner.pid.load(), owner.name));
        }
      }
      for (std::uint32_t i = 0; i < NameRecord::kCount && !place; ++i)
        if (record(i).owner.load() == 0) place = &record(i);
      full = !place;
      if (full && swept) throw Error(fmt::format("the session's table of names is full: {} keys", NameRecord::kCount));
      if (place && !in_the_way) {
        std::memset(place->key, 0, sizeof place->key);
        key.copy(place->key, sizeof place->key - 1);
        // NOLINTNEXTLINE(bugprone-use-after-move): the loop ends with this turn.
        place->publication = std::move(block).into_transit();
        SHOAL_KILL_POINT("names.publish.written");
        place->owner = session_.self().word();  // from here on it is published
        message.sent();
      }
      if (old.block) release(session_, old);
    }
    if (full) {
      session_.reclaim_all();  // the dead keep their names until somebody looks
      swept = true;
    } else if (in_the_way) {
      session_.reclaim(in_the_way);
    } else {
      break;
    }
  }
  SHOAL_KILL_POINT("names.publish.done");
  session_.layout().names_changed.notify_all();
}

bool Names::unpublish(const std::string& key) {
  check_key(key);
  HoldRef old;
  {
    Locked locked(session_, Deadline::after(kPatience));
    locked.must();
    NameRecord* place = find_record(key);
    if (!place || place->owner.load() != session_.self().word()) return false;
    old = place->publication;
    place->owner = 0;
  }
  SHOAL_KILL_POINT("names.unpublish.cleared");
  release(session_, old);
  return true;
}

std::optional<Published> Names::try_find(const std::string& key, std::uint64_t schema) {
  ProcessTag dead;
  {
    Locked locked(session_, Deadline::after(kPatience));
    locked.must();
    NameRecord* place = find_record(key);
    if (!place) return std::nullopt;
    dead = ProcessTag::from_word(place->owner.load());
    if (session_.is_alive(dead)) {
      Published found;
      found.block = hold_of(session_, place->publication.block);
      auto& layout = *reinterpret_cast<PublicationLayout*>(found.block.data());
      if (layout.magic != PublicationLayout::kMagic)
        throw DecodeError(fmt::format("what is published under '{}' is damaged", key));
      if (layout.schema != schema)
        throw DecodeError(fmt::format("what is published under '{}' has another type: schema {:016x}, here {:016x}",
                                      key, layout.schema, schema));
      found.bytes = {layout.message(), layout.size};
      found.handles.reserve(layout.handles);
      for (std::uint64_t i = 0; i < layout.handles; ++i) {
        HoldRef ref;
        std::memcpy(&ref, layout.message() + Encoder::handles_at(layout.size) + i * sizeof ref, sizeof ref);
        found.handles.push_back(hold_of(session_, ref.block));
        SHOAL_KILL_POINT("names.find.handle");
      }
      return found;
    }
  }
  session_.reclaim(dead);
  return std::nullopt;
}

Published Names::find(const std::string& key, std::uint64_t schema, Deadline deadline) {
  check_key(key);
  EventWord& changed = session_.layout().names_changed;
  for (;;) {
    const std::uint32_t prepared = changed.prepare();
    if (auto found = try_find(key, schema)) return std::move(*found);
    if (deadline.passed())
      throw NotPublished(
          fmt::format("nothing is published under the key '{}' (published are: {})", key, fmt::join(keys(), ", ")));
    changed.sleep(prepared, deadline.left(kLivenessSlice));
  }
}

std::vector<std::string> Names::keys() {
  std::vector<std::string> result;
  Locked locked(session_, Deadline::after(kPatience));
  locked.must();
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i)
    if (session_.is_alive(ProcessTag::from_word(record(i).owner.load()))) result.emplace_back(record(i).key);
  return result;
}

bool Names::withdraw(ProcessTag dead) {
  bool any = false;
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i) any |= record(i).owner.load() == dead.word();
  if (!any) return true;
  Locked locked(session_, Deadline::after(kReclaimersPatience));
  if (!locked) return false;
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i) {
    if (record(i).owner.load() == dead.word()) record(i).owner = 0;
    SHOAL_KILL_POINT("names.withdraw.one");
  }
  return true;
}

void Session::publish_message(const std::string& key, std::uint64_t schema, Encoder& message) {
  self();
  names_of(*this).publish(key, schema, message);
}

Published Session::find_published(const std::string& key, std::uint64_t schema, Deadline deadline) {
  self();
  return names_of(*this).find(key, schema, deadline);
}

bool Session::unpublish(const std::string& key) {
  self();
  return names_of(*this).unpublish(key);
}

std::vector<std::string> Session::published_keys() {
  self();
  return names_of(*this).keys();
}

}  // namespace shoal
