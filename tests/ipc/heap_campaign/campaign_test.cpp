// Many processes, random operations on the heap, every byte of every block checked; delays, stops, deaths, forks.
#include <fmt/format.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "tests/ipc/base/kill_labels.h"
#include "tests/ipc/heap_campaign/worker.h"
#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

/// The seat of the process that starts the others.
constexpr int kMaster = Judge::kSeats - 1;
static_assert(child_seat(kMaster / 2 - 1) < kMaster);

constexpr int kMostWorkers = kSanitized ? 4 : 16;

/// Starts the workers, kills, stops and delays them, and starts others in their place.
class Campaign {
 public:
  Campaign(const Plan& plan, unsigned seed)
      : plan_(plan),
        random_(seed),
        labels_(all_kill_points()),
        before_(heap_bytes_in_use()),
        judge_(Judge::create(SessionCore::current().base() + SessionCore::current().layout().data,
                             SessionCore::current().layout().extent_count * kExtentBytes, seed)) {
    for (const std::string& label : labels_)
      if (label.starts_with("heap.") || label.starts_with("extents.") || label.starts_with("block.") ||
          label.starts_with("reclaim.") || label.starts_with("ring."))
        in_the_way_.push_back(int(&label - labels_.data()));
    first_group_ = int(labels_.size());
    for (const char* group : {"heap.*", "extents.*", "block.*", "reclaim.*", "ring.*", "*"}) labels_.push_back(group);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // whose parent is killed is this process's child from then on
  }

  void run() {
    ground_ = std::make_unique<Ground>();
    judge_.seats[kMaster].pid = ::getpid();
    for (int seat = 0; seat < plan_.workers; ++seat) start(seat);
    const auto end = Clock::now() + std::chrono::duration<double>(plan_.seconds);
    const int events = plan_.kills + plan_.stops + plan_.delays;
    while (Clock::now() < end && (judge_.reports == 0 || goes_on())) {
      // Any moment: none of what is done here waits for anything of what the workers do.
      std::this_thread::sleep_for(events == 0 ? 20'000us
                                              : std::chrono::microseconds(random_() % (2'000'000 / unsigned(events))));
      if (events != 0) {
        int dice = int(random_() % unsigned(events));
        if ((dice -= plan_.kills) < 0)
          kill_one();
        else if ((dice -= plan_.stops) < 0)
          stop_one();
        else
          delay_one();
      }
      wake_stopped(false);
      reap();
    }
    finish();
  }

  bool succeeded() const { return judge_.reports == 0; }
  void print() const {
    for (int i = 0; i < std::min<int>(judge_.reports, Judge::kReports); ++i) fresh::say(judge_.texts[i]);
    const Judge::Figures& f = judge_.figures;
    fresh::say(fmt::format(
        "{}: seed {}: {} blocks made ({} large), {} verified ({} GiB), {} received, {} adopted, {} refused, {} trims, "
        "{} "
        "delays, {} stops, {} kills ({} at points), {} forks, {} rings, {} chunks, {} damaged",
        plan_.name, judge_.seed, f.made.load(), f.large.load(), f.verified.load(), f.bytes.load() >> 30,
        f.received.load(), f.adopted.load(), f.refused.load(), f.trims.load(), f.delays.load(), f.stops.load(),
        f.kills.load(), f.kills_at_points.load(), f.forks.load(), f.rings.load(), f.chunks.load(), f.damaged.load()));
  }

 private:
  /// For measuring how often: by default the first damage ends it, since the heap is none any more.
  static bool goes_on() { return std::getenv("SHOAL_CAMPAIGN_GO_ON") != nullptr; }

  void start(int seat) {
    Judge::Seat& place = judge_.seats[seat];
    place.kill_label = place.delay_label = -1;
    const unsigned seed = unsigned(random_());
    const pid_t pid = ::fork();
    if (pid != 0) {
      pids_[seat] = pid;
      return;
    }
    int code = 1;
    try {
      ::prctl(PR_SET_CHILD_SUBREAPER, 0);
      place.pid = ::getpid();
      SessionCore& session = SessionCore::current();
      session.self();
      session.adopt_inherited_holds();
      Worker(judge_, plan_, *ground_, seat, seed, labels_).run();
      session.leave();
      code = 0;
    } catch (const std::exception& error) {
      judge_.report(fmt::format("EXCEPTION in seat {}: {}", seat, error.what()));
    }
    ::_exit(code);
  }

  /// Takes the dead away. Those that died at a point by themselves are replaced.
  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) bury(pid, status);
  }

  void bury(pid_t pid, int status) {
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
      judge_.report(fmt::format("END of process {}: status {:#x}", pid, status));
    for (int seat = 0; seat < plan_.workers; ++seat) {
      if (pids_[seat] != pid) continue;
      pids_[seat] = 0;
      judge_.bury(seat);
      if (WIFSIGNALED(status)) judge_.figures.kills_at_points += killed_ != pid;
      if (!judge_.stop) start(seat);
      return;
    }
    // The child of a worker that is dead.
    for (int seat = 0; seat < plan_.workers; ++seat)
      if (judge_.seats[child_seat(seat)].pid == pid) judge_.bury(child_seat(seat));
  }

  /// Any point of ipc/, mostly one that is passed here.
  int random_point() {
    if (random_() % 8 == 0) return int(random_() % unsigned(first_group_));
    return in_the_way_[random_() % in_the_way_.size()];
  }

  void kill_one() {
    const int seat = int(random_() % unsigned(plan_.workers));
    if (const pid_t child = judge_.seats[child_seat(seat)].pid; child != 0 && random_() % 3 == 0) {
      ::kill(child, SIGKILL);
      ++judge_.figures.kills;
      return;
    }
    if (random_() % 2 == 0) {
      judge_.seats[seat].kill_label = random_point();  // it dies there when it comes by
      return;
    }
    if (pids_[seat] == 0) return;
    ::kill(pids_[seat], SIGKILL);
    ++judge_.figures.kills;
    killed_ = pids_[seat];
    int status = 0;
    while (::waitpid(pids_[seat], &status, 0) < 0 && errno == EINTR) {
    }
    bury(killed_, status);  // and the next one begins in its place
    killed_ = 0;
    if (random_() % 2 == 0) Session::current().reclaim_all();  // else another process does
  }

  void stop_one() {
    const int seat = int(random_() % unsigned(plan_.workers));
    if (pids_[seat] == 0) return;
    ::kill(pids_[seat], SIGSTOP);
    ++judge_.figures.stops;
    // Mostly short, now and then long beside all that the others do meanwhile.
    const auto length = std::chrono::microseconds(random_() % (random_() % 8 == 0 ? 300'000 : 20'000));
    stopped_.push_back({pids_[seat], Clock::now() + length});
  }

  void wake_stopped(bool all) {
    std::erase_if(stopped_, [&](const Stopped& one) {
      if (!all && Clock::now() < one.until) return false;
      ::kill(one.pid, SIGCONT);
      return true;
    });
  }

  void delay_one() {
    Judge::Seat& seat = judge_.seats[random_() % unsigned(plan_.workers)];
    seat.delay_mean = unsigned(20 + random_() % 200);
    seat.delay_one_in = unsigned(1 + random_() % 12);
    seat.delay_label = random_() % 5 == 0 ? int(labels_.size())  // no more
                       : random_() % 3 == 0
                           ? first_group_ + int(random_() % (labels_.size() - std::size_t(first_group_)))
                           : random_point();
  }

  /// All end, and what is in the heap then is what was there at the beginning.
  void finish() {
    judge_.stop = true;
    wake_stopped(true);
    const auto patience = Clock::now() + 30s;
    bool killed = false;
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == ECHILD) break;
      if (pid > 0) bury(pid, status);
      if (pid != 0) continue;
      if (Clock::now() > patience && !std::exchange(killed, true)) {
        judge_.report("HANG: processes did not end");
        for (Judge::Seat& seat : judge_.seats)
          if (seat.pid != 0 && seat.pid != ::getpid()) ::kill(seat.pid, SIGKILL);
      }
      std::this_thread::sleep_for(1ms);
    }
    SessionCore& session = SessionCore::current();
    session.reclaim_all();
    Worker(judge_, plan_, *ground_, kMaster, 1, labels_).drain();
    ground_.reset();
    session.reclaim_all();
    if (const std::size_t after = heap_bytes_in_use(); after != before_)
      judge_.report(fmt::format("LEAK: {} bytes in use, {} at the beginning", after, before_));
    session.heap().trim();
    const HeapStatistics left = heap_statistics();
    // What the counters say is what a look through the table says.
    const SessionLayout& layout = session.layout();
    const std::uint64_t counted = layout.extents_committed * kExtentBytes + layout.header_bytes;
    if (counted != left.committed_bytes)
      judge_.report(fmt::format("COUNTERS: {} bytes committed, but {} are", counted, left.committed_bytes));
    // Nobody but this process is left: it has some extents of small blocks, and no idle ones.
    if (left.idle_bytes != 0 || left.committed_bytes > 64 * kExtentBytes)
      judge_.report(fmt::format("LEAK: {} bytes committed, {} of them idle, after all are gone", left.committed_bytes,
                                left.idle_bytes));
  }

  struct Stopped {
    pid_t pid;
    Clock::time_point until;
  };

  const Plan plan_;
  std::mt19937_64 random_;
  std::vector<std::string> labels_;
  std::vector<int> in_the_way_;  // labels of what these processes do
  int first_group_ = 0;          // from here on labels are groups of points, for delays
  const std::size_t before_;
  Judge& judge_;
  std::unique_ptr<Ground> ground_;
  pid_t pids_[Judge::kSeats] = {};
  pid_t killed_ = 0;
  std::vector<Stopped> stopped_;
};

const std::vector<Plan>& plans() {
  static const std::vector<Plan> all{
      {.name = "living", .workers = 12, .churn = 60},
      {.name = "delays", .workers = 12, .stops = 20, .delays = 100},
      {.name = "deaths", .workers = 10, .kills = 60, .stops = 10, .delays = 60, .holds = 1, .forks = true},
      {.name = "rings", .workers = 10, .kills = 60, .stops = 10, .delays = 60, .rings = 50, .holds = 10, .forks = true},
  };
  return all;
}

/// In a session of its own, whose settings make the heap give memory back all the time.
void run_plan(const std::string& name, const std::string& limit) {
  const char* wanted = std::getenv("SHOAL_CAMPAIGN_SEED");
  const std::string seed = wanted ? wanted : std::to_string(std::random_device()());
  FreshProcess campaign("body: heap campaign", {{"SHOAL_CAMPAIGN", name},
                                                {"SHOAL_CAMPAIGN_SEED", seed},
                                                {"SHOAL_KEEP_IDLE", "8M"},
                                                {"SHOAL_MEMORY_LIMIT", limit},
                                                {"SHOAL_HEAP_BYTES", "4G"}});
  for (std::string line = campaign.read_line(); !line.empty(); line = campaign.read_line()) fmt::print("{}\n", line);
  CAPTURE(name, seed);
  CHECK(campaign.join() == 0);
}

}  // namespace

TEST_CASE("body: heap campaign", "[.]") {
  fresh::run([] {
    ::alarm(0);  // it lasts as long as SHOAL_TEST_SCALE says; the watchdog is there
    Plan plan = *std::ranges::find(plans(), std::string(std::getenv("SHOAL_CAMPAIGN")), &Plan::name);
    plan.seconds *= test_scale() * rounds(3) / 3.0;
    plan.workers = std::min(plan.workers, kMostWorkers);
    Campaign campaign(plan, unsigned(std::stoul(std::getenv("SHOAL_CAMPAIGN_SEED"))));
    campaign.run();
    campaign.print();
    if (!campaign.succeeded()) fresh::end(1);
  });
}

TEST_CASE("heap campaign: living processes never have one memory twice") { run_plan("living", "768M"); }

TEST_CASE("heap campaign: processes that are held up anywhere never have one memory twice") {
  run_plan("delays", "448M");
}

TEST_CASE("heap campaign: whoever dies wherever, blocks stay whole and apart, and all memory comes back") {
  run_plan("deaths", "448M");
}

TEST_CASE("heap campaign: rings and hold words come and go beside deaths, and nobody writes to what they were") {
  run_plan("rings", "448M");
}
