// A set of CPUs, of any number.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// Plain value. CPUs are numbered as the kernel does. Unlike cpu_set_t it does not end at 1024.
struct CpuSet {
  /// Bit c % 64 of word c / 64: CPU c, as sched_setaffinity wants it.
  std::vector<unsigned long> words;

  /// The CPUs that the calling thread may run on.
  static CpuSet of_this_thread();
  /// Parses the kernel's notation "0-3,8,10-11"; throws std::invalid_argument for anything else.
  static CpuSet parse(const std::string& list);

  void add(int cpu);
  bool has(int cpu) const;
  int count() const;
  bool empty() const { return count() == 0; }
  std::vector<int> list() const;
  /// Writes the kernel's notation.
  std::string text() const;
  CpuSet operator&(const CpuSet& other) const;
  bool operator==(const CpuSet& other) const { return list() == other.list(); }

  /// Makes the calling thread, and all that it starts later, run on these only; false if the kernel refuses.
  bool bind_this_thread() const noexcept;
};

}  // namespace shoal
