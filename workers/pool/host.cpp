#include <shoal/internal/workers/pool/host.h>

#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>

namespace shoal::detail {

Host::Host() : owner_(::getpid()) {}

void Host::check_owner() const {
  if (owner_ != ::getpid())
    throw std::invalid_argument(fmt::format(
        "this pool belongs to process {}, and this one is {}: make a pool of its own here", owner_, ::getpid()));
}

}  // namespace shoal::detail
