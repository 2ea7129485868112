#include <shoal/internal/runtime/cpu/cpu_set.h>

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace shoal {
namespace {

constexpr int kBits = 8 * sizeof(unsigned long);
/// Above this it is no CPU but a mistake. (Linux is built for 8192 at most.)
constexpr int kMostCpus = 1 << 16;

int number(std::string_view text, const std::string& list) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostCpus)
    throw std::invalid_argument(fmt::format("'{}' is no list of CPUs: write it like 0-3,8", list));
  return value;
}

}  // namespace

CpuSet CpuSet::of_this_thread() {
  CpuSet set;
  // The call fails if the kernel knows more CPUs than the set has room for.
  for (std::size_t words = 16; words <= kMostCpus / kBits; words *= 2) {
    set.words.assign(words, 0);
    // By number: the library's wrapper takes a cpu_set_t.
    if (::syscall(SYS_sched_getaffinity, 0, words * sizeof(unsigned long), set.words.data()) > 0) {
      while (!set.words.empty() && set.words.back() == 0) set.words.pop_back();
      return set;
    }
    if (errno != EINVAL) break;
  }
  set.words.clear();
  return set;
}

CpuSet CpuSet::parse(const std::string& list) {
  CpuSet set;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    while (!item.empty() && (item.back() == '\n' || item.back() == ' ')) item.pop_back();
    const auto dash = item.find('-');
    const int first = number(std::string_view(item).substr(0, dash), list);
    const int last = dash == std::string::npos ? first : number(std::string_view(item).substr(dash + 1), list);
    if (last < first) throw std::invalid_argument(fmt::format("'{}' is no list of CPUs: {} is backwards", list, item));
    for (int cpu = first; cpu <= last; ++cpu) set.add(cpu);
  }
  return set;
}

void CpuSet::add(int cpu) {
  const auto word = std::size_t(cpu / kBits);
  if (word >= words.size()) words.resize(word + 1, 0);
  words[word] |= 1ul << (cpu % kBits);
}

bool CpuSet::has(int cpu) const {
  const auto word = std::size_t(cpu / kBits);
  return cpu >= 0 && word < words.size() && (words[word] >> (cpu % kBits) & 1);
}

int CpuSet::count() const {
  int count = 0;
  for (unsigned long word : words) count += std::popcount(word);
  return count;
}

std::vector<int> CpuSet::list() const {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < int(words.size()) * kBits; ++cpu)
    if (has(cpu)) cpus.push_back(cpu);
  return cpus;
}

std::string CpuSet::text() const {
  std::string text;
  const std::vector<int> cpus = list();
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

CpuSet CpuSet::operator&(const CpuSet& other) const {
  CpuSet both;
  for (std::size_t i = 0; i < std::min(words.size(), other.words.size()); ++i)
    both.words.push_back(words[i] & other.words[i]);
  return both;
}

bool CpuSet::bind_this_thread() const noexcept {
  return ::syscall(SYS_sched_setaffinity, 0, words.size() * sizeof(unsigned long), words.data()) == 0;
}

}  // namespace shoal
