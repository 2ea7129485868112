#include <shoal/internal/workers/train/reduce/reduce_kernel.h>

#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

using shoal::ReduceKernel;
using shoal::ReduceOp;

namespace reduce_kernel_test {

namespace {

const std::vector<at::ScalarType> kIntegers{at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
const std::vector<at::ScalarType> kFloats{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
/// Around the loops' tile of 256 and a vector's width.
const std::vector<std::int64_t> kSizes{0, 1, 7, 64, 255, 256, 257, 1000};

std::vector<at::Tensor> random_sources(at::ScalarType type, int count, std::int64_t size) {
  std::vector<at::Tensor> sources;
  // Small whole numbers: exact in every type, also as a product of four.
  for (int i = 0; i < count; ++i) sources.push_back(torch::randint(0, 3, {size}).to(type));
  return sources;
}

at::Tensor run(ReduceOp op, std::vector<at::Tensor> sources, std::size_t destinations, bool in_place) {
  std::vector<const std::byte*> from;
  std::vector<at::Tensor> results;
  std::vector<std::byte*> to;
  for (at::Tensor& source : sources) from.push_back(static_cast<std::byte*>(source.data_ptr()));
  for (std::size_t i = 0; i < destinations; ++i)
    results.push_back(in_place && i < sources.size() ? sources[i] : torch::empty_like(sources[0]));
  for (at::Tensor& result : results) to.push_back(static_cast<std::byte*>(result.data_ptr()));
  ReduceKernel(sources[0].scalar_type(), op)(from, to, std::size_t(sources[0].numel()));
  for (at::Tensor& result : results)
    if (std::memcmp(result.data_ptr(), results[0].data_ptr(), result.nbytes()) != 0)
      throw std::runtime_error("the destinations differ");
  return results[0].clone();
}

at::Tensor expected(ReduceOp op, const std::vector<at::Tensor>& sources) {
  at::Tensor all = torch::stack(sources);
  auto type = all.scalar_type();
  if (op == ReduceOp::sum) return all.to(at::kDouble).sum(0).to(type);
  if (op == ReduceOp::avg) return all.to(at::kDouble).mean(0).to(type);
  if (op == ReduceOp::product) return all.to(at::kDouble).prod(0).to(type);
  if (op == ReduceOp::min) return std::get<0>(all.min(0));
  if (op == ReduceOp::max) return std::get<0>(all.max(0));
  at::Tensor result = sources[0].clone();
  for (std::size_t i = 1; i < sources.size(); ++i) {
    if (op == ReduceOp::bit_and) result = result.bitwise_and(sources[i]);
    if (op == ReduceOp::bit_or) result = result.bitwise_or(sources[i]);
    if (op == ReduceOp::bit_xor) result = result.bitwise_xor(sources[i]);
  }
  return result;
}

void check_all(const std::vector<at::ScalarType>& types, const std::vector<ReduceOp>& ops) {
  torch::manual_seed(1);
  int checked = 0;
  for (auto type : types)
    for (ReduceOp op : ops)
      for (auto size : kSizes)
        for (int count : {1, 2, 3, 5})
          for (std::size_t destinations : {1, 2, 3})
            for (bool in_place : {false, true}) {
              auto sources = random_sources(type, count, size);
              at::Tensor wanted = expected(op, sources);
              INFO(c10::toString(type) << " " << name_of(op) << " of " << count << " sources of " << size);
              REQUIRE(torch::equal(run(op, sources, destinations, in_place), wanted));
              ++checked;
            }
  CHECK(checked > 1000);
}

}  // namespace

TEST_CASE("reduce kernel: floats of all kinds are reduced as ATen does") {
  check_all(kFloats, {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max});
}

TEST_CASE("reduce kernel: integers of all kinds are reduced as ATen does") {
  check_all(kIntegers, {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::bit_and,
                        ReduceOp::bit_or, ReduceOp::bit_xor});
}

TEST_CASE("reduce kernel: an average is the sum divided once") {
  for (auto type : kFloats)
    for (int count : {2, 3}) {
      auto sources = random_sources(type, count, 777);
      at::Tensor sum = torch::zeros({777}, type == at::kDouble ? at::kDouble : at::kFloat);
      for (auto& source : sources) sum += source;
      CHECK(torch::equal(run(ReduceOp::avg, sources, 1, false), (sum / count).to(type)));
    }
}

TEST_CASE("reduce kernel: halfs are accumulated in float and rounded once") {
  // 2048 + 1 is 2048 in half precision, so adding ones one by one would never get anywhere.
  std::vector<at::Tensor> sources{torch::full({300}, 2048, at::kHalf)};
  for (int i = 0; i < 4; ++i) sources.push_back(torch::ones({300}, at::kHalf));
  CHECK(torch::equal(run(ReduceOp::sum, sources, 1, false), torch::full({300}, 2052, at::kHalf)));
}

TEST_CASE("reduce kernel: minimum and maximum hand a NaN on from either side") {
  for (auto type : kFloats)
    for (ReduceOp op : {ReduceOp::min, ReduceOp::max})
      for (int count : {2, 3})
        for (int with_nan = 0; with_nan < count; ++with_nan) {
          auto sources = random_sources(type, count, 300);
          sources[std::size_t(with_nan)].fill_(std::numeric_limits<double>::quiet_NaN());
          CHECK(run(op, sources, 1, false).isnan().all().item<bool>());
        }
}

TEST_CASE("reduce kernel: signs decide minimum and maximum of signed and unsigned integers") {
  at::Tensor low = torch::full({300}, -1, at::kInt), high = torch::ones({300}, at::kInt);
  CHECK(torch::equal(run(ReduceOp::min, {low, high}, 1, false), low));
  auto bits = [](const at::Tensor& tensor) { return tensor.to(at::kByte); };  // -1 is 255
  CHECK(torch::equal(run(ReduceOp::min, {bits(low), bits(high)}, 1, false), bits(high)));
}

TEST_CASE("reduce kernel: bool is added by or and multiplied by and") {
  at::Tensor a = torch::tensor({0, 0, 1, 1}).to(at::kBool), b = torch::tensor({0, 1, 0, 1}).to(at::kBool);
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bit_or})
    CHECK(torch::equal(run(op, {a, b}, 1, false), a.logical_or(b)));
  for (ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::bit_and})
    CHECK(torch::equal(run(op, {a, b}, 1, false), a.logical_and(b)));
  CHECK(torch::equal(run(ReduceOp::bit_xor, {a, b}, 1, false), a.logical_xor(b)));
}

TEST_CASE("reduce kernel: complex numbers are added by parts") {
  for (auto type : {at::kComplexFloat, at::kComplexDouble}) {
    at::Tensor a = torch::randn({333}, type), b = torch::randn({333}, type);
    CHECK(torch::equal(run(ReduceOp::sum, {a, b}, 2, false), a + b));
    CHECK_THROWS_WITH(run(ReduceOp::product, {a, b}, 1, false), ContainsSubstring("not defined"));
  }
}

TEST_CASE("reduce kernel: what has no meaning is refused by name") {
  CHECK_THROWS_WITH(ReduceKernel(at::kLong, ReduceOp::avg),
                    ContainsSubstring("avg of Long") && ContainsSubstring("truncated"));
  CHECK_THROWS_WITH(ReduceKernel(at::kFloat, ReduceOp::bit_and), ContainsSubstring("bit_and of Float"));
  CHECK_THROWS_WITH(ReduceKernel(at::kQInt8, ReduceOp::sum),
                    ContainsSubstring("QInt8") && ContainsSubstring("cannot be reduced"));
}

}  // namespace reduce_kernel_test
