#include <shoal/internal/workers/train/optim/sent_state.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <shoal/internal/tensors/modules/kept_state.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {
namespace {

using torch::optim::Optimizer;

/// Of one parameter: what there is of its state.
struct Row {
  std::int64_t exists, step, tensors;  // a bit for each tensor
};
constexpr std::int64_t kColumns = 3;

std::vector<Row> rows_of(Optimizer& optimizer) {
  std::vector<Row> rows;
  for_each_kept(optimizer, MissingState::kShow, [&](int, const at::Tensor& parameter, KeptState& kept) {
    Row row{std::int64_t(optimizer.state().count(parameter.unsafeGetTensorImpl())), kept.step ? *kept.step : 0, 0};
    for (std::size_t i = 0; i < kept.tensors.size(); ++i)
      if (kept.tensors[i].tensor->defined()) row.tensors |= std::int64_t(1) << i;
    rows.push_back(row);
  });
  return rows;
}

/// Takes state by its rows: `next` gives a tensor of a parameter's shape and type its values.
template <class Next>
void take_state(Optimizer& into, const std::vector<Row>& rows, const Next& next) {
  std::size_t at = 0;
  std::vector<void*> without;
  for_each_kept(into, MissingState::kMake, [&](int, const at::Tensor& parameter, KeptState& kept) {
    const Row& row = rows[at++];
    if (row.exists == 0) without.push_back(parameter.unsafeGetTensorImpl());
    if (kept.step) *kept.step = row.step;
    for (std::size_t i = 0; i < kept.tensors.size(); ++i) {
      *kept.tensors[i].tensor = at::Tensor();
      if ((row.tensors >> i & 1) == 0) continue;
      *kept.tensors[i].tensor = at::empty_like(parameter.detach());
      next(*kept.tensors[i].tensor);
    }
  });
  for (void* parameter : without) into.state().erase(parameter);
}

}  // namespace

std::size_t bytes_of_state(Optimizer& optimizer) {
  std::size_t bytes = 0;
  for_each_kept(optimizer, MissingState::kShow, [&](int, const at::Tensor& parameter, KeptState& kept) {
    if (kept.step) bytes += sizeof(*kept.step);
    for (const auto& part : kept.tensors) bytes += part.tensor->defined() ? part.tensor->nbytes() : parameter.nbytes();
  });
  return bytes;
}

void send_state(c10d::ProcessGroup& process_group, Optimizer& optimizer, int to) {
  const at::NoGradGuard no_grad;
  int tag = 0;
  const auto send = [&](const at::Tensor& tensor) {
    std::vector<at::Tensor> sent{tensor};
    process_group.send(sent, to, tag++)->wait();
  };
  const std::vector<Row> rows = rows_of(optimizer);
  if (rows.empty()) return;
  const at::Tensor table = at::empty({std::int64_t(rows.size()), kColumns}, at::kLong);
  auto* numbers = table.mutable_data_ptr<std::int64_t>();
  for (const Row& row : rows) {
    *numbers++ = row.exists;
    *numbers++ = row.step;
    *numbers++ = row.tensors;
  }
  send(table);
  for_each_kept(optimizer, MissingState::kSkip, [&](int, const at::Tensor&, KeptState& kept) {
    for (const auto& part : kept.tensors)
      if (part.tensor->defined()) send(part.tensor->contiguous());
  });
}

void receive_state(c10d::ProcessGroup& process_group, Optimizer& into, int from) {
  const at::NoGradGuard no_grad;
  int tag = 0;
  const auto receive = [&](const at::Tensor& tensor) {
    std::vector<at::Tensor> received{tensor};
    process_group.recv(received, from, tag++)->wait();
  };
  std::vector<Row> rows(rows_of(into).size());
  if (rows.empty()) return;
  const at::Tensor table = at::empty({std::int64_t(rows.size()), kColumns}, at::kLong);
  receive(table);
  const auto* numbers = table.const_data_ptr<std::int64_t>();
  for (Row& row : rows) {
    row = {numbers[0], numbers[1], numbers[2]};
    numbers += kColumns;
  }
  take_state(into, rows, [&](const at::Tensor& tensor) {
    const at::Tensor values = at::empty(tensor.sizes(), tensor.options());  // in rows, as it was sent
    receive(values);
    tensor.copy_(values);
  });
}

void copy_state(Optimizer& optimizer, Optimizer& into) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for_each_kept(optimizer, MissingState::kSkip, [&](int, const at::Tensor&, KeptState& kept) {
    for (const auto& part : kept.tensors)
      if (part.tensor->defined()) tensors.push_back(*part.tensor);
  });
  std::size_t at = 0;
  take_state(into, rows_of(optimizer), [&](const at::Tensor& tensor) { tensor.copy_(tensors[at++]); });
}

}  // namespace shoal
