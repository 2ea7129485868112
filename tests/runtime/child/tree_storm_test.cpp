// Random trees of processes, of which one process ends in a random way: nothing below it may be left.
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/start/methods.h"
#include "tests/support/guard.h"

namespace shoal {
namespace {

/// What a process does when it has started its children.
enum class Conduct {
  kWaits,
  kIgnoresSigterm,
  kIsStopped,
  kBlocksInQueue,
  kBlocksInWrite,
  kBlocksInFutex,
  kLeavesSession,
  kLeavesGroup,
  kComputes
};
constexpr int kConducts = 9;

/// How the victim ends.
enum class End { kSigkill, kSigterm, kCrash, kExit, kThrow, kReturn, kExec };
constexpr int kEnds = 7;

struct Node {
  int id = 0;
  StartMethod method = StartMethod::forkserver;
  Conduct conduct = Conduct::kWaits;
  bool is_victim = false;
  End end = End::kSigkill;
  std::vector<Node> children;
};

struct Started {
  int id, pid;
};

void behave(Conduct how) {
  sigset_t blocked;  // a fork inherits it
  sigemptyset(&blocked);
  if (how == Conduct::kIgnoresSigterm) sigfillset(&blocked);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  if (how == Conduct::kLeavesSession) ::setsid();
  if (how == Conduct::kLeavesGroup) ::setpgid(0, 0);
}

void end_as(End how) {
  switch (how) {
    case End::kSigkill:
    case End::kSigterm:
      for (;;) ::pause();  // is ended from outside
    case End::kCrash:
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
      break;
    case End::kExit:
      ::_exit(3);
    case End::kThrow:
      throw std::runtime_error("the victim");
    case End::kReturn:
      return;
    case End::kExec:
      ::execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
      ::_exit(1);
  }
}

/// A process of the tree: starts its children, says so, and stays.
void live(Node self, Queue<Started> started, Queue<int> go) {
  auto* children = new std::vector<Process<void>>;  // whoever returns does not wait for them
  behave(self.conduct);
  for (const Node& child : self.children) {
    children->emplace_back(ProcessOptions{.start_method = child.method, .grace_period = {}}, live, child, started, go);
    children->back().start();
  }
  Queue<int> empty(1);
  started.put({self.id, ::getpid()});
  if (self.is_victim) {
    go.get();
    end_as(self.end);
    return;
  }
  if (self.conduct == Conduct::kIsStopped) ::raise(SIGSTOP);
  if (self.conduct == Conduct::kBlocksInQueue) empty.get();
  if (self.conduct == Conduct::kBlocksInWrite) test::block_in_write();
  if (self.conduct == Conduct::kBlocksInFutex) test::block_in_futex();
  if (self.conduct == Conduct::kComputes)
    for (std::atomic<unsigned> spin = 0;; ++spin) continue;
  for (;;) ::pause();
}

class TreeMaker {
 public:
  explicit TreeMaker(unsigned seed) : random_(seed) {}

  Node make() {
    Node root = node(0);
    root.method = random_() % 2 ? StartMethod::spawn : StartMethod::forkserver;
    // Any that is not a leaf, since something has to be below it.
    std::vector<Node*> inner;
    collect(root, inner);
    Node& victim = *inner[random_() % inner.size()];
    victim.is_victim = true;
    victim.end = End(random_() % kEnds);
    return root;
  }
  int count() const { return count_; }

 private:
  Node node(int depth) {
    Node made{count_++, StartMethod(random_() % 3), Conduct(random_() % kConducts), false, End::kSigkill, {}};
    const unsigned most = depth == 0 ? 2 : depth < 3 ? 3 : 1;
    for (unsigned left = depth == 0 ? 1 + random_() % most : random_() % most; left > 0 && count_ < 12; --left)
      made.children.push_back(node(depth + 1));
    return made;
  }
  void collect(Node& from, std::vector<Node*>& inner) {
    if (!from.children.empty()) inner.push_back(&from);
    for (Node& child : from.children) collect(child, inner);
  }

  std::mt19937 random_;
  int count_ = 0;
};

const Node* find_victim(const Node& from) {
  if (from.is_victim) return &from;
  for (const Node& child : from.children)
    if (const Node* found = find_victim(child)) return found;
  return nullptr;
}

void collect_ids(const Node& from, std::vector<int>& ids) {
  ids.push_back(from.id);
  for (const Node& child : from.children) collect_ids(child, ids);
}

void play(unsigned seed) {
  TreeMaker maker(seed);
  const Node tree = maker.make();
  const Node& victim = *find_victim(tree);
  CAPTURE(seed, maker.count(), victim.id, int(victim.end));
  Queue<Started> started(64);
  Queue<int> go(1);
  Process root({.name = "tree", .start_method = tree.method, .grace_period = {}}, live, tree, started, go);
  root.start();
  std::map<int, Fd> processes;
  for (int i = 0; i < maker.count(); ++i) {
    const Started one = started.get();
    processes.emplace(one.id, open_pidfd(one.pid));
  }
  go.put(1);
  if (victim.end == End::kSigkill) send_signal(processes.at(victim.id), SIGKILL);
  if (victim.end == End::kSigterm) {
    // One that blocks it has to be ended otherwise, which its owner would do after the grace period.
    send_signal(processes.at(victim.id), SIGTERM);
    if (victim.conduct == Conduct::kIgnoresSigterm) send_signal(processes.at(victim.id), SIGKILL);
  }
  std::vector<int> doomed;
  collect_ids(victim, doomed);
  std::vector<Fd> watched;
  for (const int id : doomed) {
    // What was executed instead lives on, as its parent's child.
    if (id == victim.id && victim.end == End::kExec) continue;
    watched.push_back(std::move(processes.at(id)));
    processes.erase(id);
  }
  CHECK(test::all_end(watched));
  root.kill();
  std::vector<Fd> rest;
  for (auto& [id, process] : processes) rest.push_back(std::move(process));
  CHECK(test::all_end(rest));
  root.join();
}

TEST_CASE("orphans: random trees of which one process ends in a random way leave nothing below it") {
  const char* wanted = std::getenv("SHOAL_TREE_SEED");
  const unsigned first = wanted ? unsigned(std::stoul(wanted)) : std::random_device()();
  const int rounds = wanted ? 1 : 30 * test::test_scale();
  for (int round = 0; round < rounds; ++round) play(first + unsigned(round));
}

}  // namespace
}  // namespace shoal
