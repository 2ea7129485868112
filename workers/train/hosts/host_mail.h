// Messages between ranks of different hosts, by connections of their own.
#pragma once

#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/workers/train/gloo/opened_sockets.h>
#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/internal/workers/train/group/remote_mail.h>
#include <shoal/internal/workers/train/hosts/host_map.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shoal {

/// One rank's messages to and from those of other hosts. Each rank listens at a port; the first message to a rank, and the
/// first receive from it, connect with it. Whoever has connected sends on that connection, and gets the answers on it:
///
///   kHello   which rank it is, of which group
///   kMessage a message, with the blocks of the heap that it refers to
///   kOffer   an envelope, whose data are more than go at once
///   kPull    back: the receiver has a place for the data of an offer
///   kData    they
///   kGone    there are none any more: the sender has waited too long
///   kBye     both ways: this rank leaves
///
/// One thread does all of it, without ever waiting for anybody. A connection that ends without a kBye is a death, or a lost
/// link. Not Gloo's, because a Gloo receive has to know who sends how much, and cannot be taken back.
///
/// Owned by its Mailbox. Threads: any. A forked copy does nothing.
class HostMail final : public RemoteMail {
 public:
  /// Listens at this host's address; start() begins. `key`: of the group, the same on all ranks. Throws SystemError.
  HostMail(Mailbox& mailbox, const HostMap& map, std::uint64_t key, std::chrono::milliseconds link_timeout);
  HostMail(const HostMail&) = delete;
  ~HostMail() override;

  int port() const { return port_; }
  /// `ports`: at which the others listen, by rank.
  void start(const std::vector<std::int32_t>& ports);

  void send(int to, Encoder& message) override;
  void offer(int to, std::uint64_t number, Encoder& envelope, const std::byte* data, std::uint64_t bytes) override;
  bool withdraw(std::uint64_t number) override;
  void pull(int from, std::uint64_t number, std::byte* data, std::uint64_t bytes) override;
  void cancel(int from, std::uint64_t number) override;
  void watch(int rank) override;
  Gone state_of(int rank) const override;
  std::string end_of(int rank) const override;
  void close(bool at_once) noexcept override;

 private:
  struct Frame;
  struct Connection;
  struct State;

  void run();
  void wake() const noexcept;

  OwnerProcess owner_;
  int port_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
