#include <shoal/internal/ipc/memory/memory_node.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

namespace shoal {
namespace {

// Of <linux/mempolicy.h>; the calls' wrappers are in libnuma, which is not worth its weight for two of them.
constexpr int kDefaultPolicy = 0, kPreferredPolicy = 1;
constexpr int kMostNodes = 1024;
constexpr int kBits = 8 * sizeof(unsigned long);

/// has_memory_nodes() of this machine, looked at once, or once a thread. No static that is initialized at the first
/// call: a child that is forked while another thread does that waits for it for ever.
bool this_machine_has_nodes() {
  enum Known : int { kUnknown, kNo, kYes };
  static constinit std::atomic<Known> known{kUnknown};
  Known answer = known.load(std::memory_order_relaxed);  // relaxed: the word is all there is
  if (answer == kUnknown) {
    answer = has_memory_nodes() ? kYes : kNo;
    known.store(answer, std::memory_order_relaxed);  // relaxed: likewise
  }
  return answer == kYes;
}

}  // namespace

bool prefer_memory_node(int file, std::uint64_t offset, std::uint64_t bytes, int node) noexcept {
  if (node < 0 || node >= kMostNodes) return false;
  unsigned long nodes[kMostNodes / kBits] = {};
  nodes[node / kBits] = 1ul << (node % kBits);
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, off_t(offset));
  if (at == MAP_FAILED) return false;
  const bool done = ::syscall(SYS_mbind, at, bytes, kPreferredPolicy, nodes, kMostNodes + 1, 0) == 0;
  ::munmap(at, bytes);
  return done;
}

bool has_memory_nodes(const std::string& root) {
  std::string nodes;  // "0", or "0-1", or "0,2"
  std::ifstream(root + "/sys/devices/system/node/has_memory") >> nodes;
  return nodes.find_first_of("-,") != std::string::npos;
}

void prefer_own_memory_node(int file, std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (!this_machine_has_nodes()) return;
  int policy = kDefaultPolicy;
  if (::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0 || policy != kDefaultPolicy) return;
  unsigned cpu = 0, node = 0;
  if (::syscall(SYS_getcpu, &cpu, &node, nullptr) == 0) prefer_memory_node(file, offset, bytes, int(node));
}

}  // namespace shoal
