// The sum of the sparse tensors of ranks on several hosts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/collectives/sparse_reduce.h>
#include <shoal/internal/workers/train/two_level/two_level_state.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

/// What a rank has, before the elements themselves go.
struct SparseHead {
  std::int64_t count = 0;   // of its elements
  std::uint64_t words = 0;  // a hash of the text, which may be cut off
  char text[240] = {};
};

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

/// All ranks get all elements: how many each has, then the elements, as many from each as the most of any. Each adds them
/// in the order of ranks, so the bits are the same.
void TwoLevelGroup::all_reduce_sparse(const at::Tensor& tensor, ReduceOp op) {
  State& s = *state_;
  const at::NoGradGuard no_grad;
  if (!tensor.device().is_cpu()) throw std::invalid_argument("all_reduce of a sparse tensor on a device");
  const at::Tensor own = tensor.detach().coalesce();
  const at::Tensor indices = own._indices().contiguous(), values = own._values().contiguous();
  const std::string text = describe_sparse(own, op);
  SparseHead head{own._nnz(), schema_hash(text), {}};
  text.copy(head.text, sizeof head.text - 1);
  std::vector<SparseHead> heads;
  s.call({Collective::all_reduce_sparse, ~0u, ~0u, -1, 0}, [&] { heads = s.all_of(head); });
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < heads.size(); ++rank) {
    most = std::max(most, heads[rank].count);
    if (heads[rank].words != heads[0].words)
      throw CollectiveMismatch(fmt::format("all_reduce: {} gave the {}, and {} the {}", s.map.describe(0),
                                           heads[0].text, s.map.describe(int(rank)), heads[rank].text));
  }

  std::vector<std::int64_t> shape = values.sizes().vec();
  std::size_t of_values = values.element_size();  // bytes, for one element
  for (std::size_t i = 1; i < shape.size(); ++i) of_values *= std::size_t(shape[i]);
  const std::size_t of_indices = std::size_t(own.sparse_dim()) * sizeof(std::int64_t);
  const std::size_t bytes = std::size_t(most) * (of_indices + of_values);
  std::vector<std::byte> sent(bytes), got(bytes * heads.size());
  copy(sent.data(), indices.data_ptr(), indices.nbytes());
  copy(sent.data() + indices.nbytes(), values.data_ptr(), values.nbytes());
  std::vector<std::byte*> places;
  places.reserve(heads.size());
  for (std::size_t rank = 0; rank < heads.size(); ++rank) places.push_back(got.data() + rank * bytes);
  s.call({Collective::all_reduce_sparse, ~0u, ~0u, -1, bytes},
         [&] { s.all_gather_now({sent.data(), bytes, nullptr}, places, Type::Undefined); });

  std::vector<at::Tensor> parts;
  for (std::size_t rank = 0; rank < heads.size(); ++rank) {
    shape[0] = heads[rank].count;
    const at::Tensor where = at::empty({own.sparse_dim(), shape[0]}, indices.options());
    const at::Tensor what = at::empty(shape, values.options());
    copy(where.data_ptr(), places[rank], where.nbytes());
    copy(what.data_ptr(), places[rank] + where.nbytes(), what.nbytes());
    parts.push_back(at::_sparse_coo_tensor_unsafe(where, what, own.sizes(), own.options())._coalesced_(true));
  }
  write_sparse_reduction(tensor, parts, op);
}

}  // namespace shoal
