// The start method spawn: this program once more.
#include <shoal/internal/runtime/exec/exec_self.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/start/starter.h>
#include <shoal/internal/runtime/ticket/start_ticket.h>

namespace shoal {
namespace {

class SpawnStarter final : public Starter {
 public:
  StartedProcess begin(const StartOrder& order) override {
    ForkServerClient& client = ForkServerClient::instance();
    const StartTicket ticket{.parent = ParentTicket::of_this_process(),
                             .requests = client.socket(),
                             .fork_server = client.server(),
                             .blocks = order.lent};
    std::vector<int> descriptors = ticket.parent.descriptors();
    if (ticket.requests >= 0) descriptors.push_back(ticket.requests);
    const ChildSettings& settings = order.settings;
    auto changes = settings.environment;
    if (settings.num_threads > 0) changes.emplace_back("OMP_NUM_THREADS", std::to_string(settings.num_threads));
    return exec_self(ticket.to_argument(), descriptors, changes, settings.cpus);
  }

  void finish(StartedProcess&) override {}
};

}  // namespace

std::unique_ptr<Starter> make_spawn_starter() { return std::make_unique<SpawnStarter>(); }

}  // namespace shoal
