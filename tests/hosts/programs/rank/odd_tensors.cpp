// Tensors of every kind and type, and calls that do not fit.
#include "tests/hosts/programs/rank/odd_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::test {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

/// Bytes of a pattern, as elements of any type.
at::Tensor plain(int rank, std::int64_t count, at::ScalarType type, int salt) {
  at::Tensor numbers = (at::arange(count, at::kLong) * 5 + rank * 3 + salt) % 7 + 1;
  if (type == at::kBool) return (numbers % 2).to(at::kBool);
  return numbers.to(at::kFloat).to(type);
}

struct Kind {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> make;  // of 24 elements
  bool is_output;                                     // others may write to it
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"no dimension", [](const at::Tensor& t) { return t[7].clone(); }, true},
      {"no element", [](const at::Tensor& t) { return t.narrow(0, 0, 0); }, true},
      {"no element in the middle", [](const at::Tensor& t) { return t.narrow(0, 0, 0).view({3, 0, 2}); }, true},
      {"transposed", [](const at::Tensor& t) { return t.view({4, 6}).t(); }, true},
      {"every other row", [](const at::Tensor& t) { return t.view({6, 4}).slice(0, 1, 6, 2); }, true},
      {"channels last",
       [](const at::Tensor& t) { return t.view({1, 2, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast); }, true},
      {"in the middle of its memory", [](const at::Tensor& t) { return t.narrow(0, 5, 11); }, true},
      {"one element many times", [](const at::Tensor& t) { return t.narrow(0, 3, 1).expand({9}); }, false},
  };
  return all;
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return std::string(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && bytes_of(a) == bytes_of(b);
}

void moves(const Group& group, const Backend& backend, const Kind& kind, at::ScalarType type) {
  const int me = group->getRank(), world = group->getSize();
  const std::string what = fmt::format("{} {}", kind.name, c10::toString(type));
  const auto of = [&](int rank, int salt) { return kind.make(plain(rank, 24, type, salt)); };
  const auto place = [&] { return kind.is_output ? of(me, 99) : at::empty_like(of(me, 99).contiguous()); };
  Tensors own{of(me, 1)};

  Tensors data{me == 1 ? of(1, 2) : place()};
  c10d::BroadcastOptions from_one;
  from_one.rootRank = 1;
  group->broadcast(data, from_one)->wait();
  require(same(data[0], of(1, 2)), "broadcast, " + what);

  std::vector<Tensors> lists(1);
  for (int rank = 0; rank < world; ++rank) lists[0].push_back(place());
  group->allgather(lists, own)->wait();
  for (int rank = 0; rank < world; ++rank) require(same(lists[0][rank], of(rank, 1)), "allgather, " + what);

  for (int root : {0, world - 1}) {
    c10d::GatherOptions to_root;
    to_root.rootRank = root;
    std::vector<Tensors> gathered(me == root ? 1 : 0);
    for (int rank = 0; rank < world && me == root; ++rank) gathered[0].push_back(place());
    group->gather(gathered, own, to_root)->wait();
    for (int rank = 0; rank < world && me == root; ++rank)
      require(same(gathered[0][rank], of(rank, 1)), "gather, " + what);
    c10d::ScatterOptions from_root;
    from_root.rootRank = root;
    std::vector<Tensors> given(me == root ? 1 : 0);
    for (int rank = 0; rank < world && me == root; ++rank) given[0].push_back(of(root, 10 + rank));
    Tensors part{place()};
    group->scatter(part, given, from_root)->wait();
    require(same(part[0], of(root, 10 + me)), "scatter, " + what);
  }

  Tensors in, out;
  for (int rank = 0; rank < world; ++rank) {
    in.push_back(of(me, 20 + rank));
    out.push_back(place());
  }
  group->alltoall(out, in)->wait();
  for (int rank = 0; rank < world; ++rank) require(same(out[rank], of(rank, 20 + me)), "alltoall, " + what);

  const int next = (me + 1) % world, before = (me + world - 1) % world;
  Tensors got{place()};
  auto sent = backend->send(own, next, 3), received = backend->recv(got, before, 3);
  sent->wait();
  received->wait();
  require(same(got[0], of(before, 1)), "recv, " + what);
}

void sums(const Group& group, const Kind& kind, at::ScalarType type) {
  const int me = group->getRank(), world = group->getSize();
  if (!kind.is_output) return;
  const std::string what = fmt::format("{} {}", kind.name, c10::toString(type));
  const auto of = [&](int rank) { return kind.make(plain(rank, 24, type, 1)); };
  at::Tensor expected = of(0).clone();
  for (int rank = 1; rank < world; ++rank)
    expected = type == at::kBool ? expected.logical_or(of(rank)) : expected + of(rank);
  Tensors data{of(me)};
  group->allreduce(data)->wait();
  require(same(data[0], expected), "allreduce, " + what);
  c10d::ReduceOptions to_last;
  to_last.rootRank = world - 1;
  Tensors one{of(me)};
  group->reduce(one, to_last)->wait();
  require(same(one[0], me == world - 1 ? expected : of(me)), "reduce, " + what);
  c10d::ReduceScatterOptions options;
  Tensors part{of(me)};
  std::vector<Tensors> parts(1, Tensors(std::size_t(world), of(me)));
  group->reduce_scatter(part, parts, options)->wait();
  require(same(part[0], expected), "reduce_scatter, " + what);
}

/// Views that are not what lies in memory. By the backend: libtorch's dispatcher gives a process group copies of such.
void views(const Group& group) {
  const int world = group->getSize();
  const Backend backend = group->getBackend(c10::kCPU);
  Tensors conjugated{at::complex(at::ones({5}), at::full({5}, 2.0)).conj()};
  backend->allreduce(conjugated)->wait();
  require(conjugated[0].is_conj() && at::equal(at::real(conjugated[0]), at::full({5}, float(world))) &&
              at::equal(at::imag(conjugated[0]).resolve_neg(), at::full({5}, float(-2 * world))),
          "the sum of conjugated views");
  Tensors negative{at::imag(at::complex(at::ones({5}), at::ones({5})).conj())};
  require(negative[0].is_neg(), "a negated view");
  backend->allreduce(negative)->wait();
  require(at::equal(negative[0].resolve_neg(), at::full({5}, float(-world))), "the sum of negated views");
  Tensors leaf{at::ones({5}).set_requires_grad(true)};
  group->allreduce(leaf)->wait();
  require(leaf[0].requires_grad() && leaf[0].is_leaf() && leaf[0][0].item<float>() == float(world), "a leaf's sum");
}

}  // namespace

void odd_tensors(const Group& group) {
  const Backend backend = group->getBackend(c10::kCPU);
  for (const Kind& kind : kinds()) {
    for (const at::ScalarType type :
         {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble, at::kComplexHalf,
          at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16, at::kFloat8_e5m2, at::kFloat8_e4m3fn,
          at::kUInt16, at::kUInt32, at::kUInt64})
      moves(group, backend, kind, type);
    for (const at::ScalarType type :
         {at::kByte, at::kLong, at::kHalf, at::kFloat, at::kBool, at::kBFloat16, at::kComplexFloat})
      sums(group, kind, type);
  }
  views(group);
}

void odd_ranks(const Group& group) {
  const int me = group->getRank(), world = group->getSize();
  const bool odd = me == world - 1;
  const auto attempt = [&](const char* what, const std::function<void()>& call) {
    std::string said = "nothing";
    try {
      call();
    } catch (const std::invalid_argument& error) {
      said = error.what();
    }
    require(said != "nothing" && said.find('\n') == std::string::npos, fmt::format("{}: {}", what, said));
    Tensors one{at::full({3}, float(me))};
    group->allreduce(one)->wait();
    require(one[0][2].item<float>() == float(world * (world - 1) / 2), fmt::format("the sum after {}", what));
  };
  const auto backend = group->getBackend(c10::kCPU);
  using Op = c10d::ReduceOp::RedOpType;
  for (const std::int64_t count : {4, 40'000}) {
    Tensors size{at::ones({odd ? count : count + 1})}, type{at::ones({count}, odd ? at::kInt : at::kFloat)},
        own{at::ones({count})};
    attempt("sizes", [&] { group->allreduce(size)->wait(); });
    attempt("types", [&] { group->allreduce(type)->wait(); });
    attempt("types of a broadcast", [&] { group->broadcast(type)->wait(); });
    c10d::AllreduceOptions by;
    by.reduceOp = odd ? Op::MAX : Op::SUM;
    attempt("operations", [&] { group->allreduce(own, by)->wait(); });
    c10d::BroadcastOptions from;
    from.rootRank = odd ? 1 : 0;
    attempt("roots", [&] { group->broadcast(own, from)->wait(); });
    c10d::ReduceOptions to;
    to.rootRank = odd ? 0 : 1;
    attempt("roots of a reduction", [&] { group->reduce(own, to)->wait(); });
    attempt("calls", [&] { odd ? group->allreduce(own)->wait() : group->broadcast(own)->wait(); });
    attempt("a barrier and a sum", [&] { odd ? group->barrier()->wait() : group->allreduce(own)->wait(); });
    std::vector<Tensors> lists(1);
    for (int rank = 0; rank < world; ++rank) lists[0].push_back(at::zeros_like(size[0]));
    attempt("sizes of a gather", [&] { group->allgather(lists, size)->wait(); });
    at::Tensor whole = at::ones({(count + (odd ? 1 : 0)) * world}), part = at::zeros({count + (odd ? 1 : 0)});
    attempt("sizes of a reduce_scatter", [&] { group->_reduce_scatter_base(part, whole)->wait(); });
    at::Tensor in = at::ones({world * count}), out = at::zeros({world * count + (odd ? world : 0)});
    std::vector<std::int64_t> none;
    attempt("sizes of an all-to-all", [&] { group->alltoall_base(out, in, none, none)->wait(); });
    Tensors wrong{odd ? at::eye(2).to_sparse_csr() : at::ones({count})};
    attempt("a layout", [&] { backend->allreduce(wrong)->wait(); });
    Tensors undefined{odd ? at::Tensor() : at::ones({count})};
    attempt("an undefined tensor", [&] { backend->broadcast(undefined)->wait(); });
    std::vector<Tensors> only_roots;
    if (odd || me == 0) only_roots.push_back(Tensors(std::size_t(world), at::ones({count})));
    attempt("what only root has", [&] { backend->gather(only_roots, own)->wait(); });
    Tensors meta{odd ? at::ones({count}, at::kMeta) : at::ones({count})};
    attempt("a device", [&] { backend->allreduce(meta)->wait(); });
  }
  std::vector<int> members;
  members.reserve(std::size_t(world));
  for (int rank = 0; rank < world; ++rank) members.push_back(rank);
  if (odd) members.back() = world + 5;
  attempt("members", [&] { backend->split(nullptr, members, nullptr); });
}

}  // namespace shoal::test
