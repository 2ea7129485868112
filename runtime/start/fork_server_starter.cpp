// The start method forkserver: the fork server is asked for a process, and tells of its end.
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/fork_server/fork_server_protocol.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/internal/runtime/start/starter.h>

namespace shoal {
namespace {

class ForkServerStarter final : public Starter {
 public:
  /// The fork server's are those of whoever made it, not this process's.
  CpuSet open_cpus() const override { return CpuSet::of_this_thread(); }

  StartedProcess begin(const StartOrder& order) override {
    fork_ = ForkServerClient::instance().request(order.lent);
    return {};
  }

  void finish(StartedProcess& process) override {
    try {
      process = ForkServerClient::instance().await(fork_);
    } catch (const ForkServerDied& died) {
      throw StartLost(died.what());
    }
  }

  /// The server says how it ended a moment after it.
  int end_descriptor(const StartedProcess&) const override { return fork_.reply.get(); }

  std::optional<ExitStatus> collect(const StartedProcess& process, Deadline deadline) override {
    EndReply end;
    std::vector<Fd> none;
    if (receive_message(fork_.reply, writable_bytes_of(end), none)) return end.status;
    // The fork server is dead, and the kernel is about to end this child.
    const int descriptor = process.process.get();
    if (!wait_readable({&descriptor, 1}, deadline)) return std::nullopt;
    return ExitStatus{.unknown = 1};
  }

 private:
  PendingFork fork_;
};

}  // namespace

std::unique_ptr<Starter> make_fork_server_starter() { return std::make_unique<ForkServerStarter>(); }

}  // namespace shoal
