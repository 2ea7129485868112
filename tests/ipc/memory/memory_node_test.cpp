#include <shoal/internal/ipc/memory/memory_node.h>

#include <fcntl.h>
#include <shoal/ipc/fd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace shoal {
namespace {

constexpr std::uint64_t kPart = 2u << 20;

/// What the kernel will do at this address; -1 where it does not say.
int policy_at(const void* address) {
  int policy = -1;
  constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
  if (::syscall(SYS_get_mempolicy, &policy, nullptr, 0, address, kOfAddress) != 0) return -1;
  return policy;
}

std::size_t mappings() {
  std::ifstream file("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

TEST_CASE("memory node: the wish is kept with the file, for its part only, and cuts no mapping") {
  Fd file(::memfd_create("nodes", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), 8 * kPart) == 0);
  auto* all = static_cast<char*>(::mmap(nullptr, 8 * kPart, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  REQUIRE(all != MAP_FAILED);
  const std::size_t before = mappings();
  if (!prefer_memory_node(file.get(), 2 * kPart, kPart, 0)) {
    WARN("the kernel refuses memory policies here (a container without CAP_SYS_NICE): nothing to be seen");
  } else {
    CHECK(prefer_memory_node(file.get(), 5 * kPart, kPart, 0));
    // Seen through the old mapping, as other processes see it through theirs.
    CHECK(policy_at(all + 2 * kPart) == 1);
    CHECK(policy_at(all + 5 * kPart + kPart / 2) == 1);
    for (const int other : {0, 1, 3, 4, 6, 7}) CHECK(policy_at(all + std::uint64_t(other) * kPart) == 0);
    CHECK(mappings() == before);
    all[2 * kPart] = 1;  // and pages come
  }
  ::munmap(all, 8 * kPart);
}

TEST_CASE("memory node: a node that there is not is refused, and changes nothing") {
  Fd file(::memfd_create("nodes", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), kPart) == 0);
  CHECK_FALSE(prefer_memory_node(file.get(), 0, kPart, 1000));
  CHECK_FALSE(prefer_memory_node(file.get(), 0, kPart, -1));
  CHECK_FALSE(prefer_memory_node(file.get(), 0, kPart, 100000));
  CHECK_FALSE(prefer_memory_node(-1, 0, kPart, 0));
}

TEST_CASE("memory node: the kernel's list tells whether there are several") {
  const test::TemporaryFolder folder;
  const std::string& root = folder.path();
  CHECK_FALSE(has_memory_nodes(root));
  std::filesystem::create_directories(root + "/sys/devices/system/node");
  for (const auto& [text, several] :
       {std::pair("0\n", false), std::pair("0-7\n", true), std::pair("0,2\n", true), std::pair("1\n", false)}) {
    std::ofstream(root + "/sys/devices/system/node/has_memory") << text;
    CHECK(has_memory_nodes(root) == several);
  }
}

}  // namespace
}  // namespace shoal
