#ifndef __SANITIZE_ADDRESS__  // its variables are so many that they are left out
#include <shoal/internal/runtime/fork_server/warm_pages.h>

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <iterator>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

namespace shoal {
namespace {

constexpr int kPages = 16, kPage = 4096;
char variables[(kPages + 1) * kPage];

long faults() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

long faults_of_writing() {
  const long before = faults();
  for (std::size_t i = 0; i < std::size(variables); i += kPage) const_cast<volatile char&>(variables[i]) = 2;
  return faults() - before;
}

TEST_CASE("warm pages: a forked process that brought them in writes to its variables without a fault") {
  for (std::size_t i = 0; i < std::size(variables); i += kPage) variables[i] = 1;
  if (::madvise(variables + kPage - reinterpret_cast<std::uintptr_t>(variables) % kPage, kPage, MADV_POPULATE_WRITE) !=
      0) {
    WARN("not with this kernel: MADV_POPULATE_WRITE came with Linux 5.14");
    return;
  }
  const WarmPages pages;
  test::Forked cold([] {
    if (faults_of_writing() < kPages) throw std::runtime_error("without them each page costs a fault");
  });
  CHECK(cold.join() == 0);
  test::Forked warm([&] {
    pages.bring_in();
    if (faults_of_writing() > kPages / 4) throw std::runtime_error("they were not brought in");
    if (variables[kPage] != 2) throw std::runtime_error("what was written is there");
  });
  CHECK(warm.join() == 0);
  CHECK(variables[kPage] == 1);
}

}  // namespace
}  // namespace shoal
#endif
