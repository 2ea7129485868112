#include <shoal/runtime/current_process.h>

#include <utility>

namespace shoal {
namespace {

CurrentProcess& stored() {
  static CurrentProcess process;
  return process;
}

}  // namespace

const CurrentProcess& current_process() { return stored(); }

void runtime_detail::set_current_process(CurrentProcess process) { stored() = std::move(process); }

}  // namespace shoal
