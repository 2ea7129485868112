#include <shoal/internal/runtime/cpu/binding.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {
namespace {

CpuSet joined(const std::vector<CpuSet>& sets, std::size_t first, std::size_t last) {
  CpuSet all;
  for (std::size_t i = first; i < last; ++i)
    for (const int cpu : sets[i].list()) all.add(cpu);
  return all;
}

int cores_in(const CpuSet& cpus, const Topology& machine) {
  return int(std::ranges::count_if(machine.cores, [&](const CpuSet& core) { return !(core & cpus).empty(); }));
}

const std::vector<CpuSet>& places_of(Binding binding, const Topology& machine) {
  switch (binding) {
    case Binding::none:
    case Binding::core:
      break;
    case Binding::cache:
      return machine.caches;
    case Binding::numa:
      return machine.nodes;
  }
  return machine.cores;
}

}  // namespace

const char* binding_name(Binding binding) {
  switch (binding) {
    case Binding::none:
      return "none";
    case Binding::core:
      return "core";
    case Binding::cache:
      return "cache";
    case Binding::numa:
      return "numa";
  }
  return "none";
}

Binding parse_binding(const std::string& name) {
  for (const Binding binding : {Binding::none, Binding::core, Binding::cache, Binding::numa})
    if (name == binding_name(binding)) return binding;
  throw std::invalid_argument(fmt::format("'{}' is no binding: it is none, core, cache or numa", name));
}

std::vector<CpuPart> divide_cpus(Binding binding, int count, const Topology& machine) {
  const std::vector<CpuSet>& places = places_of(binding, machine);
  if (places.empty()) throw Error("hwloc knows of no CPU that this process may run on");
  const auto n = std::size_t(count), have = places.size();
  std::vector<CpuPart> parts;
  for (std::size_t i = 0; i < n; ++i) {
    // The i-th n-th of the places, rounded down at both ends; the one at its beginning if that is less than one.
    const std::size_t first = i * have / n, last = std::max(first + 1, (i + 1) * have / n);
    CpuPart part{joined(places, first, last), 1};
    if (n <= have) {
      part.threads = std::max(1, cores_in(part.cpus, machine));
    } else {
      // All whose part begins in the same place share it.
      const std::size_t from = (first * n + have - 1) / have, to = ((first + 1) * n + have - 1) / have;
      part.threads = std::max(1, cores_in(part.cpus, machine) / int(to - from));
    }
    if (binding == Binding::none) {
      part.cpus = {};
      part.threads = std::max(1, int(machine.cores.size()) / count);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<CpuPart> divide_cpus(Binding binding, int count) {
  return divide_cpus(binding, count, Topology::of_this_machine());
}

}  // namespace shoal
