#include <shoal/internal/workers/train/optim/ended_ranks.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <shoal/internal/workers/train/optim/option_text.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {
namespace {

constexpr int kTag = 0x5a65524f;  // apart from those of the user's messages

/// What is said of a gradient.
enum Mark : std::uint8_t { kKeep, kFollows, kNone };

/// Its gradient can be sent: as many bytes as the parameter has.
bool is_sent(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return gradient.defined() && gradient.layout() == c10::kStrided &&
         gradient.scalar_type() == parameter.scalar_type() && gradient.sizes() == parameter.sizes();
}

at::Tensor bytes_of(std::size_t size) { return at::empty({std::int64_t(size)}, at::kByte); }

void send(c10d::ProcessGroup& process_group, const at::Tensor& tensor, int to) {
  std::vector<at::Tensor> sent{tensor};
  process_group.send(sent, to, kTag)->wait();
}

void receive(c10d::ProcessGroup& process_group, const at::Tensor& tensor, int from) {
  std::vector<at::Tensor> received{tensor};
  process_group.recv(received, from, kTag)->wait();
}

/// Collective: the first active rank's.
void broadcast(c10d::ProcessGroup& process_group, const at::Tensor& tensor, int root) {
  std::vector<at::Tensor> all{tensor};
  process_group.broadcast(all, {.rootRank = root})->wait();
}

/// Which of a rank's parameters have gradients that follow, then options and gradients in one message.
void send_to(c10d::ProcessGroup& process_group, int to, const std::string& options,
             const std::vector<at::Tensor>& share, bool may_be_sharded) {
  const at::Tensor follows = bytes_of(share.size());
  auto* marks = follows.mutable_data_ptr<std::uint8_t>();
  std::size_t size = options.size();
  for (std::size_t i = 0; i < share.size(); ++i) {
    marks[i] = is_sent(share[i]) ? kFollows : share[i].grad().defined() || may_be_sharded ? kKeep : kNone;
    if (marks[i] == kFollows) size += share[i].nbytes();
  }
  if (!share.empty()) send(process_group, follows, to);
  if (size == 0) return;
  const at::Tensor message = bytes_of(size);
  auto* at = message.mutable_data_ptr<std::uint8_t>();
  at = std::ranges::copy(options, at).out;
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (marks[i] != kFollows) continue;
    const at::Tensor values = share[i].grad().detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    std::memcpy(at, values.const_data_ptr(), values.nbytes());
    at += values.nbytes();
  }
  send(process_group, message, to);
}

}  // namespace

void tell_call(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const JoinStep& step,
               const OptimizerCall& call, torch::optim::Optimizer& optimizer,
               const std::vector<std::vector<at::Tensor>>& shares, bool may_be_sharded) {
  const at::NoGradGuard no_grad;
  const bool tells = process_group->getRank() == step.first_active;
  const std::string options = tells ? written_options(optimizer) : std::string();
  const at::Tensor said = at::empty({4}, at::kDouble);
  auto* numbers = said.mutable_data_ptr<double>();
  numbers[0] = call.clips ? 1 : 0;
  numbers[1] = call.max_norm;
  numbers[2] = call.norm_type;
  numbers[3] = double(options.size());
  broadcast(*process_group, said, step.first_active);
  if (tells)
    for (const int ended : step.ended)
      send_to(*process_group, ended, options, shares[std::size_t(ended)], may_be_sharded);
}

OptimizerCall hear_call(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const JoinStep& step,
                        torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& share) {
  const at::NoGradGuard no_grad;
  const at::Tensor said = at::empty({4}, at::kDouble);
  broadcast(*process_group, said, step.first_active);
  const auto* numbers = said.const_data_ptr<double>();
  const OptimizerCall call{.clips = numbers[0] != 0, .max_norm = numbers[1], .norm_type = numbers[2]};
  const auto option_bytes = std::size_t(numbers[3]);
  const at::Tensor follows = bytes_of(share.size());
  if (!share.empty()) receive(*process_group, follows, step.first_active);
  const auto* marks = follows.const_data_ptr<std::uint8_t>();
  std::size_t size = option_bytes;
  for (std::size_t i = 0; i < share.size(); ++i)
    if (marks[i] == kFollows)
      size += share[i].nbytes();
    else if (marks[i] == kNone)
      share[i].mutable_grad().reset();
  if (size == 0) return call;
  const at::Tensor message = bytes_of(size);
  receive(*process_group, message, step.first_active);
  const auto* at = message.const_data_ptr<std::uint8_t>();
  if (option_bytes > 0) read_options(optimizer, std::string(reinterpret_cast<const char*>(at), option_bytes));
  at += option_bytes;
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (marks[i] != kFollows) continue;
    const at::Tensor values = at::empty(share[i].sizes(), share[i].options().device(at::kCPU).requires_grad(false));
    std::memcpy(values.mutable_data_ptr(), at, values.nbytes());
    at += values.nbytes();
    at::Tensor& gradient = share[i].mutable_grad();
    if (is_sent(share[i]))
      gradient.copy_(values);
    else
      gradient = values.to(share[i].device());
  }
  return call;
}

}  // namespace shoal
