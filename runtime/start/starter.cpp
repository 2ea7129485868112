#include <shoal/internal/runtime/start/starter.h>

#include <stdexcept>

namespace shoal {

std::unique_ptr<Starter> make_starter(StartMethod method) {
  switch (method) {
    case StartMethod::spawn:
      return make_spawn_starter();
    case StartMethod::forkserver:
      return make_fork_server_starter();
    case StartMethod::fork:
      return make_fork_starter();
  }
  throw std::invalid_argument("a start method that there is not");
}

}  // namespace shoal
