#include <shoal/internal/workers/pool/host.h>

#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>

namespace shoal::detail {

void Host::check_owner() const {
  if (!is_own())
    throw std::invalid_argument(fmt::format(
        "this pool belongs to process {}, and this one is {}: make a pool of its own here", owner_.pid(), ::getpid()));
}

}  // namespace shoal::detail
