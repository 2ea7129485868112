// Every layout as message, argument and result, private and shared.
#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ivalue.h>
#include <shoal/tensors/share.h>

#include <functional>
#include <map>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

template <class T>
T through_queue(const T& value) {
  Queue<T> queue(1);
  queue.put(value);
  return queue.get();
}

/// Equal in everything that a receiver can see.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.is_nested() != b.is_nested() || a.layout() != b.layout() || a.dtype() != b.dtype() || a.device() != b.device())
    return false;
  if (a.requires_grad() != b.requires_grad()) return false;
  if (a.is_nested()) {
    auto parts = [](const at::Tensor& tensor) { return tensor.unbind(); };
    auto x = parts(a), y = parts(b);
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), same);
  }
  if (a.sizes() != b.sizes()) return false;
  if (a.device().is_meta()) return a.strides() == b.strides();
  switch (a.layout()) {
    case at::kSparse:
      return a.is_coalesced() == b.is_coalesced() && at::equal(a._indices(), b._indices()) &&
             at::equal(a._values(), b._values());
    case at::kSparseCsr:
    case at::kSparseBsr:
      return at::equal(a.crow_indices(), b.crow_indices()) && at::equal(a.col_indices(), b.col_indices()) &&
             at::equal(a.values(), b.values());
    case at::kSparseCsc:
    case at::kSparseBsc:
      return at::equal(a.ccol_indices(), b.ccol_indices()) && at::equal(a.row_indices(), b.row_indices()) &&
             at::equal(a.values(), b.values());
    default:
      break;
  }
  if (a.is_quantized())
    return a.qscheme() == b.qscheme() && at::equal(a.int_repr(), b.int_repr()) &&
           at::equal(a.dequantize(), b.dequantize());
  return at::equal(a, b);
}

at::Tensor sparse_matrix() {
  at::Tensor dense = at::zeros({4, 6});
  dense[0][1] = 1;
  dense[2][5] = 2;
  dense[3][0] = 3;
  return dense;
}

using Maker = std::function<at::Tensor()>;

const std::map<std::string, Maker>& layouts() {
  static const std::map<std::string, Maker> makers{
      {"strided", [] { return at::rand({3, 4}); }},
      {"0-d", [] { return at::scalar_tensor(5); }},
      {"zero-size", [] { return at::empty({0, 3}); }},
      {"transposed", [] { return at::rand({3, 4}).t(); }},
      {"expanded", [] { return at::rand({1, 4}).expand({5, 4}); }},
      {"overlapping", [] { return at::rand({10}).as_strided({4, 3}, {2, 1}); }},
      {"sliced", [] { return at::rand({10, 10}).slice(1, 2, 8, 3); }},
      {"conjugate", [] { return at::rand({3}, at::kComplexFloat).conj(); }},
      {"negative", [] { return at::imag(at::rand({3}, at::kComplexFloat).conj()); }},
      {"leaf", [] { return at::rand({2}).requires_grad_(); }},
      {"quantized per tensor", [] { return at::quantize_per_tensor(at::rand({3, 4}), 0.1, 3, at::kQUInt8); }},
      {"quantized transposed", [] { return at::quantize_per_tensor(at::rand({3, 4}), 0.1, 0, at::kQInt8).t(); }},
      {"quantized per channel",
       [] {
         return at::quantize_per_channel(at::rand({3, 4}), at::rand({4}, at::kDouble) + 0.1, at::arange(4), 1,
                                         at::kQInt32);
       }},
      {"COO", [] { return sparse_matrix().to_sparse(); }},
      {"COO not coalesced",
       [] {
         return at::sparse_coo_tensor(at::tensor({0, 0, 1, 1}).reshape({2, 2}).to(at::kLong), at::rand({2, 3}),
                                      {2, 2, 3});
       }},
      {"COO empty", [] { return at::zeros({3, 4}).to_sparse(); }},
      {"CSR", [] { return sparse_matrix().to_sparse_csr(); }},
      {"CSC", [] { return sparse_matrix().to_sparse_csc(); }},
      {"BSR", [] { return sparse_matrix().to_sparse_bsr({2, 3}); }},
      {"BSC", [] { return sparse_matrix().to_sparse_bsc({2, 3}); }},
      {"nested", [] { return at::_nested_tensor_from_tensor_list({at::rand({2, 3}), at::rand({4, 1})}); }},
      {"meta", [] { return at::empty_strided({3, 4}, {1, 3}, at::TensorOptions(at::kHalf).device(at::kMeta)); }},
      {"meta of a large tensor",
       [] { return at::empty({8, 64, 16, 256, 256}, at::TensorOptions(at::kFloat).device(at::kMeta)); }},
      {"meta of many dimensions",
       [] { return at::empty(std::vector<std::int64_t>(12, 2), at::TensorOptions(at::kFloat).device(at::kMeta)); }},
      {"undefined", [] { return at::Tensor(); }},
  };
  return makers;
}

struct Nested {
  std::vector<at::Tensor> list;
  std::map<std::string, std::pair<at::Tensor, int>> map;
};

Nested echo(int, Nested value) { return value; }

}  // namespace

TEST_CASE("layouts: every one arrives as it was, through a queue and through a pipe") {
  for (const auto& [name, make] : layouts()) {
    CAPTURE(name);
    at::Tensor tensor = make();
    CHECK(same_layout(through_queue(tensor), tensor));
    Pipe<at::Tensor> pipe;
    pipe.first.send(tensor);
    CHECK(same_layout(pipe.second.recv(), tensor));
  }
}

TEST_CASE("layouts: what has no memory is refused, with what to send") {
  Pipe<at::Tensor> pipe;
  CHECK_THROWS_WITH(pipe.first.send(at::_efficientzerotensor({3})),
                    ContainsSubstring("send torch::zeros_like(tensor)"));
  const at::Tensor sparse = at::empty({3, 4}, at::TensorOptions(at::kFloat).layout(at::kSparse).device(at::kMeta));
  CHECK_THROWS_AS(pipe.first.send(sparse), std::invalid_argument);
  pipe.first.send(at::ones({3}));
  CHECK(at::equal(pipe.second.recv(), at::ones({3})));
  const at::Tensor meta = at::empty({3}, at::TensorOptions(at::kComplexFloat).device(at::kMeta));
  CHECK(through_queue(meta.conj()).is_conj());
  CHECK(through_queue(at::_neg_view(meta)).is_neg());
  CHECK_FALSE(through_queue(meta).is_conj());
}

TEST_CASE("layouts: of a shared tensor the receiver has the same memory, whatever the layout") {
  for (const auto& [name, make] : layouts()) {
    at::Tensor tensor = make();
    if (!tensor.defined() || tensor.device().is_meta() || name == "leaf") continue;
    CAPTURE(name);
    CHECK_FALSE(is_shared(tensor));
    share_memory_(tensor);
    CHECK(is_shared(tensor));
    at::Tensor got = through_queue(tensor);
    CHECK(same_layout(got, tensor));
    CHECK(is_shared(got));
    auto memory = [](const at::Tensor& t) {
      if (t.layout() == at::kSparse) return t._values().storage().data();
      if (t.layout() != at::kStrided) return t.values().storage().data();
      return t.storage().data();
    };
    CHECK(memory(got) == memory(tensor));
  }
}

TEST_CASE("layouts: every one is an argument and a result, inside other values, by each start method") {
  Nested value;
  int number = 0;
  for (const auto& [name, make] : layouts()) {
    at::Tensor tensor = make();
    value.list.push_back(tensor);
    value.map[name] = {tensor, number++};
  }
  for (StartMethod method : {StartMethod::fork, StartMethod::forkserver, StartMethod::spawn}) {
    std::vector<Nested> results =
        spawn({.nprocs = 1, .start_method = method, .fork_despite_threads = true}, echo, value);
    REQUIRE(results.size() == 1);
    REQUIRE(results[0].list.size() == value.list.size());
    for (std::size_t i = 0; i < value.list.size(); ++i) CHECK(same_layout(results[0].list[i], value.list[i]));
    for (const auto& [name, entry] : value.map) {
      CAPTURE(name);
      CHECK(same_layout(results[0].map[name].first, entry.first));
      CHECK(results[0].map[name].second == entry.second);
    }
  }
}

TEST_CASE("layouts: private tensors of one message that share a storage share it on the other side") {
  at::Tensor whole = at::arange(100);
  auto got = through_queue(std::vector<at::Tensor>{whole, whole.view({10, 10}), whole.slice(0, 0, 60)});
  got[0][5] = 1000;
  CHECK(got[1][0][5].item<int>() == 1000);
  CHECK(got[2][5].item<int>() == 1000);
  CHECK(whole[5].item<int>() == 5);  // the sender's is another one
}

TEST_CASE("layouts: a small view of a private tensor that is in the message before it stays a view of it") {
  at::Tensor whole = at::arange(100).view({10, 10});
  auto got = through_queue(std::vector<at::Tensor>{whole, whole[2], whole.select(1, 3), whole[4][4]});
  for (std::size_t i = 1; i < got.size(); ++i) {
    INFO("view " << i);
    CHECK(got[i].storage().unsafeGetStorageImpl() == got[0].storage().unsafeGetStorageImpl());
  }
  got[0].fill_(7);
  CHECK(at::equal(got[1], at::full({10}, 7)));
  CHECK(at::equal(got[2], at::full({10}, 7)));
  CHECK(got[3].item<int>() == 7);
  // What comes before has gone as its own elements already.
  got = through_queue(std::vector<at::Tensor>{whole[2], whole});
  CHECK(got[0].storage().nbytes() == 10 * sizeof(std::int64_t));
  CHECK(at::equal(got[1], whole));
}

TEST_CASE("layouts: a small view of a large private tensor moves its own bytes, an expanded one does not grow") {
  const std::size_t before = heap_bytes_in_use();
  at::Tensor large = at::zeros({1000, 1000});
  Queue<at::Tensor> queue(1);
  queue.put(large[7]);
  CHECK(heap_bytes_in_use() - before < 100'000);
  queue.get();
  queue.put(at::zeros({1, 10}).expand({100'000, 10}));
  CHECK(heap_bytes_in_use() - before < 100'000);
}

TEST_CASE("layouts: a sparse tensor with an index outside is a DecodeError") {
  at::Tensor indices = at::tensor({0, 1, 0, 1}, at::kLong).reshape({2, 2}), values = at::rand({2});
  at::Tensor wrong = at::_sparse_coo_tensor_unsafe(indices * 1000, values, {2, 2});
  CHECK_THROWS_AS(through_queue(wrong), DecodeError);
  at::Tensor csr = sparse_matrix().to_sparse_csr();
  csr.col_indices()[0] = 77;
  CHECK_THROWS_AS(through_queue(csr), DecodeError);
}

TEST_CASE("layouts: a nested tensor that reaches outside its buffer is a DecodeError") {
  at::Tensor nested = at::_nested_tensor_from_tensor_list({at::rand({2, 3}), at::rand({4, 1})});
  auto* impl = at::native::get_nested_tensor_impl(nested);
  impl->get_storage_offsets()[1] = 100;
  CHECK_THROWS_AS(through_queue(nested), DecodeError);
}

TEST_CASE("layouts: what does not cross is refused by name") {
  at::Tensor leaf = at::rand({2}).requires_grad_();
  CHECK_THROWS_WITH(through_queue(leaf * 2), ContainsSubstring("detach"));
}

TEST_CASE("ivalue: everything it can be arrives as it was") {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::ListType::create(c10::IntType::get()));
  dict.insert("a", c10::List<std::int64_t>({1, 2}));
  dict.insert("b", c10::List<std::int64_t>());
  c10::List<at::Tensor> tensors({at::rand({2}), at::rand({3})});
  const c10::IValue values[] = {c10::IValue(),
                                c10::IValue(1.5),
                                c10::IValue(7),
                                c10::IValue(true),
                                c10::IValue("text"),
                                c10::IValue(c10::Device("meta")),
                                c10::IValue(c10::complex<double>(1, 2)),
                                c10::IValue(c10::List<double>({1, 2})),
                                c10::IValue(c10::List<std::string>({"x"})),
                                c10::IValue(dict),
                                c10::ivalue::Tuple::create({c10::IValue(1), c10::IValue("two"), c10::IValue(dict)})};
  for (const c10::IValue& value : values) {
    CAPTURE(value.tagKind());
    c10::IValue got = through_queue(value);
    CHECK(got == value);
    CHECK(*got.type() == *value.type());
  }
  const c10::IValue with_none = through_queue(c10::IValue(c10::List<at::Tensor>({at::ones({2}), at::Tensor()})));
  CHECK(at::equal(with_none.toTensorVector().at(0), at::ones({2})));
  CHECK_FALSE(with_none.toTensorVector().at(1).defined());
  const c10::IValue pair =
      through_queue(c10::IValue(c10::ivalue::Tuple::create({c10::IValue(at::Tensor()), c10::IValue(1)})));
  CHECK_FALSE(pair.toTupleRef().elements().at(0).toTensor().defined());
  c10::IValue got = through_queue(c10::IValue(tensors));
  CHECK(got.isTensorList());
  CHECK(at::equal(got.toTensorVector().at(1), tensors.get(1)));
}

TEST_CASE("ivalue: what cannot cross is refused by name") {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  CHECK_THROWS_WITH(through_queue(c10::IValue(future)), ContainsSubstring("Future"));
  const auto type =
      c10::TupleType::createNamed(c10::QualifiedName("__torch__.Point"), std::vector<std::string>{"x", "y"},
                                  std::vector<c10::TypePtr>{c10::IntType::get(), c10::IntType::get()});
  const c10::IValue point = c10::ivalue::Tuple::createNamed({c10::IValue(1), c10::IValue(2)}, type);
  CHECK_THROWS_WITH(through_queue(point), ContainsSubstring("Point") && ContainsSubstring("send a plain tuple"));
  c10::impl::GenericList points(type);
  points.push_back(point);
  CHECK_THROWS_WITH(through_queue(c10::IValue(points)), ContainsSubstring("Point"));
  c10::impl::GenericDict by_name(c10::StringType::get(), type);
  CHECK_THROWS_WITH(through_queue(c10::IValue(by_name)), ContainsSubstring("Point"));
}

TEST_CASE("tensor queue: a loan is filled in place and put without a copy") {
  Queue<at::Tensor> queue(2);
  at::Tensor loan = queue.loan({3, 4}, at::kLong);
  loan.fill_(5);
  queue.put(loan);
  at::Tensor got = queue.get();
  CHECK(got.data_ptr() == loan.data_ptr());
  CHECK(got.sum().item<int>() == 60);
}
