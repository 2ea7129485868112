// The start method fork: a copy of this process.
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/internal/runtime/start/fork_self.h>
#include <shoal/internal/runtime/start/starter.h>

namespace shoal {
namespace {

class ForkStarter final : public Starter {
 public:
  bool copies_this_process() const override { return true; }

  StartedProcess begin(const StartOrder& order) override {
    FreshFork fork = fork_self(order.lent, order.header, order.task,
                               order.settings.fork_despite_threads ? OtherThreads::kLose : OtherThreads::kRefuse);
    ready_ = std::move(fork.ready);
    return std::move(fork.process);
  }

  void finish(StartedProcess& process) override {
    const int either[] = {ready_.get(), process.process.get()};
    wait_readable(either, Deadline::never());
    ready_.reset();
  }

 private:
  Fd ready_;
};

}  // namespace

std::unique_ptr<Starter> make_fork_starter() { return std::make_unique<ForkStarter>(); }

}  // namespace shoal
