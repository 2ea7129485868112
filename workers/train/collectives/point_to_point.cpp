#include <shoal/workers/train/point_to_point.h>

#include <shoal/internal/workers/train/collectives/tensor_bytes.h>
#include <shoal/internal/workers/train/collectives/tensor_messages.h>
#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/ipc/trace_span.h>

namespace shoal {

static_assert(object_messages::kAnyRank == Mailbox::kAnySource);

struct Transfer::State {
  std::shared_ptr<Mailbox> mailbox;
  Mailbox::Handle operation;
};

struct TransferMaker {
  static Transfer make(std::shared_ptr<Mailbox> mailbox, Mailbox::Handle operation) {
    return Transfer(std::make_shared<Transfer::State>(Transfer::State{std::move(mailbox), std::move(operation)}));
  }
};

bool Transfer::is_done() const { return state_->mailbox->is_done(state_->operation); }

int Transfer::wait() const { return wait(state_->mailbox->timeout()); }

int Transfer::wait(std::chrono::nanoseconds timeout) const {
  const TraceSpan span("wait for a message");
  return state_->mailbox->wait(state_->operation, timeout);
}

std::exception_ptr Transfer::failure() const { return state_->mailbox->failure_of(state_->operation); }

int Transfer::peer() const { return state_->mailbox->peer_of(state_->operation); }

namespace {

/// Also of tensors that will be refused.
std::uint64_t traced_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? std::uint64_t(tensor.numel()) * tensor.element_size() : 0;
}

Mailbox::Handle begin_send(Mailbox& mailbox, const at::Tensor& tensor, int to, int tag) {
  auto bytes = std::make_shared<TensorBytes>(tensor, "send");
  return mailbox.send(bytes->region(), to, tag, std::uint32_t(tensor.scalar_type()), [bytes] {});
}

Mailbox::Handle begin_recv(Mailbox& mailbox, const at::Tensor& tensor, int from, int tag) {
  auto bytes = std::make_shared<TensorBytes>(tensor, "recv");
  const Region region = bytes->region();
  return mailbox.receive(region.data, region.bytes, from, tag, std::uint32_t(tensor.scalar_type()),
                         [bytes] { bytes->write_back(); });
}

}  // namespace

Transfer tensor_messages::isend(std::shared_ptr<Mailbox> mailbox, const at::Tensor& tensor, int to, int tag) {
  auto operation = begin_send(*mailbox, tensor, to, tag);
  return TransferMaker::make(std::move(mailbox), std::move(operation));
}

Transfer tensor_messages::irecv(std::shared_ptr<Mailbox> mailbox, const at::Tensor& tensor, int from, int tag) {
  auto operation = begin_recv(*mailbox, tensor, from, tag);
  return TransferMaker::make(std::move(mailbox), std::move(operation));
}

void send(Communicator& ranks, const at::Tensor& tensor, int to, int tag) {
  const TraceSpan span("send", traced_bytes(tensor));
  ranks.mailbox().wait(begin_send(ranks.mailbox(), tensor, to, tag));
}

void recv(Communicator& ranks, const at::Tensor& tensor, int from, int tag) {
  const TraceSpan span("recv", traced_bytes(tensor));
  ranks.mailbox().wait(begin_recv(ranks.mailbox(), tensor, from, tag));
}

int recv_anysource(Communicator& ranks, const at::Tensor& tensor, int tag) {
  const TraceSpan span("recv_anysource", traced_bytes(tensor));
  return ranks.mailbox().wait(begin_recv(ranks.mailbox(), tensor, Mailbox::kAnySource, tag));
}

Transfer isend(Communicator& ranks, const at::Tensor& tensor, int to, int tag) {
  return tensor_messages::isend(ranks.share_mailbox(), tensor, to, tag);
}

Transfer irecv(Communicator& ranks, const at::Tensor& tensor, int from, int tag) {
  return tensor_messages::irecv(ranks.share_mailbox(), tensor, from, tag);
}

Transfer irecv_anysource(Communicator& ranks, const at::Tensor& tensor, int tag) {
  return tensor_messages::irecv(ranks.share_mailbox(), tensor, Mailbox::kAnySource, tag);
}

void object_messages::send(Mailbox& mailbox, std::uint64_t schema, const std::string& type, const Write& write, int to,
                           int tag) {
  const TraceSpan span("send_object");
  mailbox.wait(mailbox.send_value(schema, type, write, to, tag));
}

int object_messages::receive(Mailbox& mailbox, std::uint64_t schema, const std::string& type, const Read& read,
                             int from, int tag) {
  const TraceSpan span("recv_object");
  const auto operation = mailbox.receive_value(schema, type, from, tag);
  const int sender = mailbox.wait(operation);
  const Mailbox::Message message = mailbox.take_message(operation);
  read(*message.decoder);
  return sender;
}

}  // namespace shoal
