// Which CPUs each of several processes gets.
#pragma once

#include <shoal/internal/runtime/cpu/topology.h>

#include <string>
#include <vector>

namespace shoal {

/// The CPUs that a started process and all its threads are bound to.
enum class Binding {
  none,   ///< none: the kernel moves it as it likes
  core,   ///< whole cores of its own, next to each other; if there are fewer than processes, one shared core
          ///< processes
  cache,  ///< whole last-level caches; if there are fewer than processes, those at one cache share its cores
  numa,   ///< like cache, with the memory's nodes: memory that the process touches first lies next to it
};

/// "none", "core", "cache" or "numa". Static text.
const char* binding_name(Binding binding);
/// "none", "core", "cache" or "numa"; throws std::invalid_argument for another name.
Binding parse_binding(const std::string& name);

/// One process's part.
struct CpuPart {
  CpuSet cpus;      ///< empty: any
  int threads = 1;  ///< that compute without getting into each other's way: one a core
};

/// Divides the machine among `count` processes; part i is for the i-th. With `none` there are only the threads.
/// The parts of `core` are as equal as whole cores allow, and neighbouring processes get neighbouring cores, so as many
/// processes as nodes (or caches) fill one each. Pure: it depends on nothing else.
std::vector<CpuPart> divide_cpus(Binding binding, int count, const Topology& machine);

/// Divides the CPUs of this machine that the calling thread may use.
std::vector<CpuPart> divide_cpus(Binding binding, int count);

}  // namespace shoal
