// The steps that collectives over several hosts are made of. Only for the sources beside it.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/workers/train/failures/failure_watch.h>
#include <shoal/internal/workers/train/group/communicator_state.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/hosts/column.h>
#include <shoal/internal/workers/train/two_level/two_level.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// What a rank calls. All ranks' have to be the same.
struct CallNote {
  Collective what{};
  std::uint32_t type = ~0u;  // c10::ScalarType
  std::uint32_t op = ~0u;    // ReduceOp; all ones: none
  std::int32_t root = -1;    // -1: none
  std::uint64_t bytes = 0;
  ForwardPass pass = {};  // that it belongs to

  bool operator==(const CallNote&) const = default;
};

/// What a host says to the others in each collective, in every column: what its ranks call, or which two do not agree.
struct HostNote {
  std::uint64_t number = 0;                 // of the collective, from 1
  std::int32_t rank = -1, other_rank = -1;  // other_rank: -1 if all agree
  CallNote call, other_call;
};

static_assert(std::is_trivially_copyable_v<HostNote> && sizeof(HostNote) == 80);

/// Up to here a share is sent to all other hosts at once, so that one message has to be waited for and not two.
inline constexpr std::size_t kDirectBytes = 16 << 10;
/// Up to here data go with the note. Two copies more cost less than Gloo's asking, whatever the link: 256 KiB are copied in
/// some 20 us.
inline constexpr std::size_t kWithNoteBytes = 256 << 10;

/// What the hosts' sums are made by: an average is a sum, divided when all is summed.
inline ReduceOp summing(ReduceOp op) { return op == ReduceOp::avg ? ReduceOp::sum : op; }
/// Throws std::invalid_argument unless the bytes are whole elements.
void check_elements(const char* what, std::size_t bytes, std::size_t size, c10::ScalarType type);

struct TwoLevelGroup::State {
  explicit State(Parts parts);
  ~State();
  void tell_of_deaths();

  /// Does a collective: all of it happens in `body`. Whatever it throws, but std::invalid_argument, breaks the group.
  template <class Body>
  void call(const CallNote& note, Body body);

  /// The bytes of one of several shares: whole cache lines, so the elements are whole, too.
  struct Share {
    std::size_t begin, size;
    Share(std::size_t total, int count, int index) {
      std::size_t each = (total + std::size_t(count) - 1) / std::size_t(count);
      each = (each + 63) / 64 * 64;
      begin = std::min(total, each * std::size_t(index));
      size = std::min(each, total - begin);
    }
  };

  // --- Where this rank is.
  int local_ranks() const { return map.ranks_on(map.my_host()); }
  int hosts() const { return int(map.hosts.size()); }
  bool in_column() const { return column_index >= 0; }
  /// How many columns carry a buffer that is cut into shares: of small ones, fewer.
  int columns_for(std::size_t bytes) const {
    return int(std::clamp<std::size_t>(bytes / 4096, 1, std::size_t(columns)));
  }
  /// Sum of one column's parts from, or for, all other hosts.
  std::size_t carried_elsewhere(int column_number) const;

  // --- Steps, in this order: compare, (data to the columns), send and receive, meet, (data from the columns).
  /// Compares what the ranks of this host call. If they disagree, tells the other hosts and throws.
  void compare_on_host(const CallNote& note);
  /// Sends what this host calls to the others of the column, with the small data that are to go to them. Once in a
  /// collective; meet() does it at the latest.
  void send_notes();
  /// Before meet() small data go with the note, others by Gloo at once; the memory stays until the collective is over.
  void send(int to, const void* data, std::size_t bytes, int phase);
  void receive(int from, void* data, std::size_t bytes, int phase);
  /// Waits for the others' notes and for all that was posted. If hosts disagree, all ranks get CollectiveMismatch.
  void meet();
  void take_notes();
  /// Whether a host calls what this one does, all of its ranks and all of these.
  bool agrees(const HostNote& theirs) const {
    return own_note.other_rank < 0 && theirs.other_rank < 0 && theirs.call == own_note.call;
  }
  void wait_for(const GlooGroup::Pending& message);
  void forget_posts();
  /// Waits for what was posted since.
  void finish();

  // --- A large all-reduce, piece by piece.
  struct Passage {
    Region range;
    std::uint32_t piece = 0;
    int shares = 1;
    Share share{0, 1, 0};  // this column's
    bool direct = true;    // all hosts get the whole share of each
    std::vector<const std::byte*> sources;
    std::vector<std::span<std::byte>> rooms;  // for the other hosts' shares, by host
    /// What of the share a host reduces.
    Share part_of(int host, int hosts) const {
      return direct ? Share(share.size, 1, 0) : Share(share.size, hosts, host);
    }
  };
  void begin_passage(Passage& passage, const Region& range, std::uint32_t number_of_piece);
  template <class Average>
  void end_passage(Passage& passage, const ReduceKernel& kernel, Average average_of);

  // --- What several collectives do.
  /// data (of hosts() sources, in their order) = their reduction. `own` is this host's place in `data`.
  void reduce_hosts(const ReduceKernel& kernel, std::vector<const std::byte*>& sources, std::byte* result,
                    std::size_t bytes);
  void average(std::byte* data, std::size_t bytes, Type type, ReduceOp op) const;
  /// Every column's share of the data goes to all ranks of the host.
  void spread(const Region& data, int shares);
  /// The parts that each column has for ranks of this host, in the order of local ranks, go to them: `part` bytes each.
  void deliver_parts(const std::byte* carried, std::byte* output, std::size_t part);
  /// What each column has goes to one local rank: `sizes` by column. The result is one after the other.
  void deliver_to(int local, const std::byte* carried, std::span<const std::size_t> sizes, std::byte* output);
  template <class T>
  std::vector<T> all_of(T own);  ///< every rank's, by rank
  void all_gather_now(const Region& input, std::span<std::byte* const> outputs, Type type);

  /// Memory that stays until the collective is over. Kept for the next one.
  std::byte* scratch(std::size_t bytes);

  [[noreturn]] void fail(const char* what, std::exception_ptr error);
  /// After a time-out: where this host's ranks are, on stderr, by the first that comes to it. Any thread.
  void report_time_out_here();
  /// This rank's collectives and messages are over: the group is broken. The second: its messages alone. Any thread.
  void leave_host(const Failure& failure);
  void end_messages(const Failure& failure);
  [[noreturn]] void throw_failure(const char* what, const Failure& failure) const;
  void check_usable(const char* what);
  void set_deadlines();
  std::string missing_text(std::span<const int> local_ranks) const;
  std::string late_text(int culprit) const;
  std::string waited_text() const;
  void check_root(const char* what, int root) const;

  HostMap map;
  std::unique_ptr<Communicator> host;  // null once this rank has left it, because of a failure
  std::mutex leaving;                  // held to leave, and by the watch, which ends this rank's waits there
  std::unique_ptr<StoreConnection> store;
  std::unique_ptr<Column> column;
  std::unique_ptr<FailureBoard> board;
  std::shared_ptr<Mailbox> mail;
  std::weak_ptr<RemoteMail> remote;  // the mailbox's
  MeetingPlace place;
  std::chrono::milliseconds link_timeout;
  int columns;
  int column_index;  // -1: in none
  OwnerProcess owner;

  std::mutex in_call;  // held during a call
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  Deadline deadline = Deadline::never();
  std::uint64_t number = 0;  // of the collective
  std::uint64_t splits = 0;
  HostNote own_note;
  std::vector<HostNote> notes;  // by host
  bool notes_sent = false;
  using Bytes = std::span<const std::byte>;
  std::vector<std::vector<Bytes>> with_note;  // by host: what goes with its note
  struct Expected {
    int host;
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<Expected> expected;  // with the notes, in the order of what is sent
  struct Posted {
    GlooGroup::Pending pending;
    int host;
  };
  std::vector<Posted> posted;
  std::array<std::vector<Posted>, 2> posted_pieces;
  std::uint32_t piece = 0;  // that is sent and received
  std::deque<std::vector<std::byte>> memory;
  std::size_t memory_used = 0;

  std::unique_ptr<FailureWatch> watch;
};

template <class Body>
void TwoLevelGroup::State::call(const CallNote& note, Body body) {
  std::lock_guard lock(in_call);
  const char* const what = name_of(note.what);
  check_usable(what);
  set_deadlines();
  CallNote in_pass = note;
  in_pass.pass = ForwardPassScope::current().announced();
  const ForwardPassScope of_parts({});  // which are compared as a whole
  own_note = HostNote{++number, map.rank_at(map.my_host(), 0), -1, in_pass, {}};
  memory_used = 0;
  piece = 0;
  forget_posts();
  try {
    const WholeFlight flight(host->state_->recorder, note.what, note.type, note.bytes);
    watch->enter(true);
    compare_on_host(in_pass);
    watch->enter(false);
    body();
  } catch (const std::invalid_argument&) {
    watch->enter(false);
    forget_posts();
    throw;  // on all ranks, each of which is done with this collective
  } catch (const std::exception&) {
    watch->enter(false);
    fail(what, std::current_exception());
  }
}

template <class T>
std::vector<T> TwoLevelGroup::State::all_of(T own) {
  std::vector<T> all(std::size_t(map.world_size()));
  std::vector<std::byte*> places;
  places.reserve(all.size());
  for (T& each : all) places.push_back(reinterpret_cast<std::byte*>(&each));
  all_gather_now({reinterpret_cast<std::byte*>(&own), sizeof own, nullptr}, places, Type::Undefined);
  return all;
}

}  // namespace shoal
