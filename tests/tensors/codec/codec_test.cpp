#include <shoal/tensors/codec.h>

#include <ATen/ATen.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>

#include <map>
#include <random>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

at::Tensor through_queue(const at::Tensor& tensor) {
  Queue<at::Tensor> queue(1);
  queue.put(tensor);
  return queue.get();
}

/// Equal in everything a receiver can see; bytes for types that have no ==.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

const at::ScalarType kTypes[] = {
    at::kBool,   at::kByte,        at::kChar,         at::kShort,         at::kInt,         at::kLong,
    at::kUInt16, at::kUInt32,      at::kUInt64,       at::kHalf,          at::kBFloat16,    at::kFloat,
    at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn};

at::Tensor filled(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor tensor = at::empty(sizes, type);
  auto* bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = type == at::kBool ? i % 2 : std::uint8_t(i * 31 + 7);
  return tensor;
}

struct Metrics {
  double loss;
  at::Tensor confusion;
  std::map<std::string, at::Tensor> extra;
};

Metrics measure(int rank, at::Tensor weights, std::vector<at::Tensor> parts) {
  return {0.5 * rank, weights + rank, {{"sum", parts.at(0) + parts.at(1)}, {"same", weights}}};
}

}  // namespace

TEST_CASE("tensor codec: every element type arrives with its bits, private and shared") {
  for (at::ScalarType type : kTypes) {
    CAPTURE(c10::toString(type));
    at::Tensor tensor = filled({3, 5}, type);
    at::Tensor copy = through_queue(tensor);
    CHECK(same(copy, tensor));
    CHECK(is_shared(copy));
    CHECK_FALSE(is_shared(tensor));  // the sender's is not changed
    share_memory_(tensor);
    at::Tensor alias = through_queue(tensor);
    CHECK(same(alias, tensor));
    CHECK(alias.data_ptr() == tensor.data_ptr());
  }
}

TEST_CASE("tensor codec: every shape of view arrives equal") {
  for (bool shared : {false, true}) {
    at::Tensor base = filled({6, 8, 5}, at::kFloat);
    if (shared) share_memory_(base);
    for (at::Tensor view :
         {base, base.transpose(0, 2), base.slice(1, 2, 7, 3), base.select(2, 4), base[3], base[1][2][0],
          base.slice(0, 2, 2), base.slice(1, 3, 4).expand({6, 4, 5}), base.permute({2, 0, 1}),
          base.flatten().as_strided({3, 3}, {1, 1}, 5), at::empty({0}), at::empty({3, 0, 2})}) {
      at::Tensor copy = through_queue(view);
      CHECK(same(copy, view));
      if (shared && view.numel() > 0) CHECK(copy.strides() == view.strides());
    }
  }
}

TEST_CASE("tensor codec: random strided views arrive equal and never reach outside their block") {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  at::Tensor base = filled({4000}, at::kShort);
  at::Tensor shared = base.clone();
  share_memory_(shared);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::int64_t> sizes, strides;
    std::int64_t last = 0;
    for (unsigned d = random() % 5; d > 0; --d) {
      sizes.push_back(std::int64_t(random() % 6));
      strides.push_back(std::int64_t(random() % 40));
      last += std::max<std::int64_t>(sizes.back() - 1, 0) * strides.back();
    }
    std::int64_t offset = std::int64_t(random() % std::uint64_t(4000 - last));
    CHECK(same(through_queue(base.as_strided(sizes, strides, offset)), base.as_strided(sizes, strides, offset)));
    CHECK(same(through_queue(shared.as_strided(sizes, strides, offset)), base.as_strided(sizes, strides, offset)));
  }
}

TEST_CASE("tensor codec: a private view moves only its own elements") {
  at::Tensor large = at::zeros({1000, 1000});
  CHECK(through_queue(large[3]).storage().nbytes() == 4000);
}

TEST_CASE("tensor codec: an expanded tensor of more bytes than can be counted arrives by the few that it has") {
  for (const at::ScalarType type : {at::kByte, at::kLong, at::kComplexDouble}) {
    const at::Tensor huge = at::ones({3}, type).slice(0, 2, 3).expand({1LL << 30, 1LL << 31});  // of 8 bytes: 2^64
    Queue<at::Tensor> queue(1);
    const std::size_t before = heap_bytes_in_use();
    queue.put(huge);
    CHECK(heap_bytes_in_use() - before < 1 << 20);
    const at::Tensor copy = queue.get();
    CHECK(copy.sizes() == huge.sizes());
    CHECK(copy.strides() == huge.strides());
    CHECK(copy[1 << 29][7].equal(at::ones({}, type)));
  }
}

TEST_CASE("tensor codec: tensors of one message that share a storage share one on the other side") {
  at::Tensor base = at::zeros({4, 4});
  share_memory_(base);
  Queue<std::pair<at::Tensor, at::Tensor>> queue(1);
  queue.put({base, base.t()});
  auto [first, second] = queue.get();
  CHECK(first.storage().unsafeGetStorageImpl() == second.storage().unsafeGetStorageImpl());
  CHECK(second.is_alias_of(first));
}

TEST_CASE("tensor codec: conjugate and negative views arrive as what they show") {
  at::Tensor complex = at::randn({3, 3}, at::kComplexDouble);
  CHECK(through_queue(complex.conj()).equal(complex.conj()));
  share_memory_(complex);
  at::Tensor conjugate = through_queue(complex.conj());
  CHECK(conjugate.is_conj());
  CHECK(conjugate.equal(complex.conj()));
  at::Tensor imaginary = at::imag(complex.conj());
  CHECK(imaginary.is_neg());
  CHECK(through_queue(imaginary).equal(imaginary));
}

TEST_CASE("tensor codec: undefined stays undefined; requires_grad of a leaf is kept; others are refused by name") {
  CHECK_FALSE(through_queue(at::Tensor()).defined());
  at::Tensor leaf = at::ones({2}).requires_grad_();
  CHECK(through_queue(leaf).requires_grad());
  CHECK_THROWS_WITH(through_queue(leaf * 2), ContainsSubstring("detach"));
}

TEST_CASE("tensor codec: a tensor lives in the message alone, and after its queue") {
  at::Tensor kept;
  {
    Queue<at::Tensor> queue(1);
    {
      at::Tensor tensor = at::full({100}, 3.0);
      share_memory_(tensor);
      queue.put(tensor);
    }
    kept = queue.get();
  }
  CHECK(kept.eq(3.0).all().item<bool>());
}

TEST_CASE("tensor codec: arguments and results are nested values of tensors, by each start method") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  at::Tensor weights = at::arange(6, at::kFloat).reshape({2, 3});
  std::vector<at::Tensor> parts{at::ones({3}), at::full({3}, 2.0)};
  auto results = spawn({.nprocs = 2, .start_method = method, .fork_despite_threads = true}, measure, weights, parts);
  REQUIRE(results.size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(results[rank].loss == 0.5 * rank);
    CHECK(results[rank].confusion.equal(weights + rank));  // outlives the process that made it
    CHECK(results[rank].extra.at("sum").eq(3.0).all().item<bool>());
    CHECK(results[rank].extra.at("same").equal(weights));
  }
}

TEST_CASE("tensor codec: hostile headers are DecodeErrors, never a read outside the block") {
  at::Tensor tensor = at::zeros({4, 6});
  share_memory_(tensor);
  Encoder encoder;
  encode(encoder, tensor.t());  // with strides
  std::vector<std::byte> good(encoder.bytes().begin(), encoder.bytes().end());
  auto decode_bytes = [&](const std::vector<std::byte>& bytes) {
    Encoder again;
    encode(again, tensor);
    Decoder::Handles handles;
    handles.push_back(Hold::from_transit(again.handles()[0]));
    again.sent();
    Decoder decoder(bytes, std::move(handles));
    at::Tensor result = decode<at::Tensor>(decoder);
    decoder.finish();
    return result;
  };
  REQUIRE(decode_bytes(good).equal(tensor.t()));
  auto with = [&](std::size_t at, auto value) {
    auto bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  CHECK_THROWS_AS(decode_bytes(with(0, std::uint32_t(9))), DecodeError);   // handle
  CHECK_THROWS_AS(decode_bytes(with(4, std::uint8_t(250))), DecodeError);  // type
  CHECK_THROWS_AS(decode_bytes(with(6, std::uint8_t(65))), DecodeError);   // dimensions
  CHECK_THROWS_AS(decode_bytes(with(8, std::int64_t(-1))), DecodeError);   // offset
  CHECK_THROWS_AS(decode_bytes(with(8, std::int64_t(1))), DecodeError);
  CHECK_THROWS_AS(decode_bytes(with(16, std::int64_t(1) << 62)), DecodeError);  // sizes
  CHECK_THROWS_AS(decode_bytes(with(16, std::int64_t(-4))), DecodeError);
  CHECK_THROWS_AS(decode_bytes(with(32, std::int64_t(1) << 61)), DecodeError);  // strides
  CHECK_THROWS_AS(decode_bytes(with(32, std::int64_t(-1))), DecodeError);
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = good;
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = std::byte(random() % (k == 0 ? 256 : 8));
    try {
      at::Tensor result = decode_bytes(bytes);
      // All of it may be read (of the types that ATen can copy).
      if (result.defined() && result.numel() < 1000) (void)result.clone();
    } catch (const DecodeError&) {
    } catch (const c10::NotImplementedError&) {
    }
  }
}
