#include <shoal/internal/runtime/cpu/topology.h>

#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <shoal/ipc/error.h>

#include <memory>

namespace shoal {
namespace {

/// The functions of hwloc that are used here, from its library, which is loaded when a binding is asked for: linked in,
/// it would cost every start of a process half a millisecond. (Its header's inline functions call others: not used.)
class Hwloc {
 public:
  Hwloc() : library_(::dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_)
      throw Error(
          fmt::format("{}: without hwloc CPUs cannot be assigned by core, cache or memory: install it "
                      "(Debian: libhwloc15), or use Binding::none",
                      ::dlerror()));
  }
  Hwloc(const Hwloc&) = delete;
  ~Hwloc() { ::dlclose(library_); }

  template <class Function>
  Function* find(Function*, const char* name) const {
    void* found = ::dlsym(library_, name);
    if (!found) throw Error(fmt::format("libhwloc.so.15 has no function {}: it is too old", name));
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* library_;
};

#define SHOAL_HWLOC(name) library.find(&::name, #name)

void check(int result, const char* what) {
  if (result < 0) throw Error(fmt::format("hwloc: {} failed", what));
}

CpuSet set_of(const Hwloc& library, hwloc_const_bitmap_t bitmap) {
  auto next = SHOAL_HWLOC(hwloc_bitmap_next);
  CpuSet set;
  for (int cpu = next(bitmap, -1); cpu >= 0; cpu = next(bitmap, cpu)) set.add(cpu);
  return set;
}

/// All objects of the first of these types that the machine has.
std::vector<CpuSet> places(const Hwloc& library, hwloc_topology_t topology,
                           std::initializer_list<hwloc_obj_type_t> types) {
  for (const hwloc_obj_type_t type : types) {
    const int depth = SHOAL_HWLOC(hwloc_get_type_depth)(topology, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) continue;
    std::vector<CpuSet> found;
    const unsigned count = SHOAL_HWLOC(hwloc_get_nbobjs_by_depth)(topology, depth);
    for (unsigned i = 0; i < count; ++i) {
      CpuSet set = set_of(library, SHOAL_HWLOC(hwloc_get_obj_by_depth)(topology, depth, i)->cpuset);
      if (!set.empty()) found.push_back(std::move(set));  // memory without CPUs, as HBM or CXL
    }
    if (!found.empty()) return found;
  }
  return {};
}

Topology load(const char* synthetic) {
  const Hwloc library;
  hwloc_topology_t topology = nullptr;
  check(SHOAL_HWLOC(hwloc_topology_init)(&topology), "hwloc_topology_init");
  const auto destroy = SHOAL_HWLOC(hwloc_topology_destroy);
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> owner(topology, destroy);
  if (synthetic && SHOAL_HWLOC(hwloc_topology_set_synthetic)(topology, synthetic) < 0)
    throw Error(fmt::format("'{}' is no machine in hwloc's notation", synthetic));
  check(SHOAL_HWLOC(hwloc_topology_load)(topology), "hwloc_topology_load");
  Topology result;
  result.cores = places(library, topology, {HWLOC_OBJ_CORE, HWLOC_OBJ_PU});
  result.caches =
      places(library, topology, {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE});
  result.nodes = places(library, topology, {HWLOC_OBJ_NUMANODE, HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE});
  return result;
}

#undef SHOAL_HWLOC

std::vector<CpuSet> restricted(const std::vector<CpuSet>& sets, const CpuSet& allowed) {
  std::vector<CpuSet> result;
  for (const CpuSet& set : sets)
    if (CpuSet both = set & allowed; !both.empty()) result.push_back(std::move(both));
  return result;
}

}  // namespace

Topology Topology::of_this_machine() { return load(nullptr).restricted_to(CpuSet::of_this_thread()); }

Topology Topology::synthetic(const std::string& description) { return load(description.c_str()); }

Topology Topology::restricted_to(const CpuSet& allowed) const {
  return {restricted(cores, allowed), restricted(caches, allowed), restricted(nodes, allowed)};
}

}  // namespace shoal
