// The rows of sparse gradients: those of libtorch's coalesce(), added up in their order; what comes alone is not copied.
#include <shoal/internal/workers/train/hogwild/sparse_rows.h>

#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace sparse_rows_test {

using namespace shoal;
using hogwild::SparseRows;

namespace {

/// `count` rows of [0, bound), of which some come often.
at::Tensor drawn_rows(std::int64_t count, std::int64_t bound, double often) {
  const at::Tensor all = torch::randint(bound, {count}, at::kLong);
  const at::Tensor few = torch::randint(std::min<std::int64_t>(bound, 5), {count}, at::kLong) * (bound / 5);
  return torch::where(torch::rand({count}) < often, few.clamp_max(bound - 1), all);
}

at::Tensor values_of(const SparseRows& rows, const at::Tensor& like) {
  at::Tensor all = torch::empty({std::int64_t(rows.numbers().size()), rows.row_size()}, like.options());
  const std::size_t bytes = std::size_t(rows.row_size()) * like.element_size();
  for (std::size_t i = 0; i < rows.numbers().size(); ++i)
    std::memcpy(static_cast<std::byte*>(all.data_ptr()) + i * bytes, rows.values(i), bytes);
  return all;
}

bool is_in(const std::byte* place, const at::Tensor& tensor) {
  const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
  return place >= from && place < from + tensor.nbytes();
}

void check_rows(const at::Tensor& rows, const at::Tensor& values, std::int64_t bound) {
  // coalesce() sorts its own way, so that it may add in another order: only its rows are compared.
  const at::Tensor once = torch::sparse_coo_tensor(rows.unsqueeze(0), values, {bound, values.size(1)}).coalesce();
  SparseRows own(rows, values, bound);
  const std::vector<std::int64_t> numbers(own.numbers().begin(), own.numbers().end());
  REQUIRE(torch::equal(torch::tensor(numbers, at::kLong), once._indices()[0]));
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const at::Tensor places = (rows == numbers[i]).nonzero().squeeze(1);
    at::Tensor sum = values[places[0].item<std::int64_t>()].clone();
    for (std::int64_t j = 1; j < places.numel(); ++j) sum += values[places[j].item<std::int64_t>()];
    sums.push_back(sum);
    REQUIRE(is_in(own.values(i), values) == (places.numel() == 1));
  }
  const at::Tensor wanted = sums.empty() ? torch::empty_like(values) : torch::stack(sums);
  REQUIRE(torch::equal(values_of(own, values), wanted));
  const at::Tensor before = values.clone();
  at::Tensor& copied = own.own_values();
  CHECK(torch::equal(copied, wanted));
  copied.mul_(2);
  CHECK(torch::equal(values_of(own, values), wanted * 2));
  CHECK(torch::equal(values, before));
  CHECK(&own.own_values() == &copied);
}

}  // namespace

TEST_CASE("hogwild: sparse rows are those of coalesce(), in any order and number") {
  torch::manual_seed(3);
  // Bounds on both sides of one, two and three bytes.
  for (const std::int64_t bound : {1, 2, 255, 256, 257, 65'536, 65'537, 20'000'000})
    for (const std::int64_t count : {0, 1, 2, 3, 50, 300})
      for (const double often : {0.0, 0.3, 1.0})
        for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
          INFO(fmt::format("{} of {} rows, {} of them of five", count, bound, often));
          check_rows(drawn_rows(count, bound, often), torch::randn({count, 7}, type), bound);
        }
}

TEST_CASE("hogwild: sparse rows that ascend stay where they are, and need not lie in line") {
  const at::Tensor pairs = torch::arange(40, at::kLong).view({20, 2});
  const at::Tensor values = torch::randn({20, 3});
  check_rows(pairs.select(1, 1), values, 40);
  check_rows(pairs.select(1, 1).flip(0), values, 40);
  const SparseRows own(pairs.select(1, 0), values, 40);
  for (std::size_t i = 0; i < 20; ++i)
    CHECK(own.values(i) == static_cast<const std::byte*>(values.const_data_ptr()) + i * 3 * sizeof(float));
}

TEST_CASE("hogwild: sparse rows of half types are added up in float") {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    // In a half type each 1 would be lost beside 2048, in bfloat16 beside 256.
    const at::Tensor values = torch::cat({torch::full({1, 2}, 4096), torch::ones({64, 2})}).to(type);
    const SparseRows own(torch::full({65}, 9, at::kLong), values, 10);
    REQUIRE(own.numbers().size() == 1);
    CHECK(torch::equal(values_of(own, values), torch::full({1, 2}, 4096 + 64).to(type)));
  }
}

TEST_CASE("hogwild: sparse rows beyond the parameter are refused, also of a gradient that says it is coalesced") {
  const at::Tensor values = torch::ones({3, 2});
  for (const std::int64_t row : {std::int64_t(-1), std::int64_t(4), std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min()}) {
    const at::Tensor rows = torch::tensor({std::int64_t(0), row, std::int64_t(1)}, at::kLong);
    try {
      const SparseRows own(rows, values, 4);
      FAIL("row " << row << " was taken");
    } catch (const std::out_of_range& error) {
      CHECK(error.what() == fmt::format("row {}, where there are rows from 0 to 3", row));
    }
    const at::Tensor table = share_memory_(torch::ones({4, 2}));
    table.mutable_grad() = at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), values, {4, 2})._coalesced_(true);
    hogwild::SGD optimizer(std::vector<at::Tensor>{table}, {.lr = 1});
    try {
      optimizer.step();
      FAIL("row " << row << " was taken");
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find(fmt::format("parameter 0 has row {}, where", row)) != std::string::npos);
    }
    CHECK(torch::equal(table, torch::ones({4, 2})));
    CHECK(optimizer.steps() == 0);
  }
}

TEST_CASE("hogwild: sparse values of which libtorch has the sign or the zeros alone are read as they are meant") {
  const at::Tensor rows = torch::tensor({{2, 0}}, at::kLong);
  for (const bool zero : {false, true}) {
    const at::Tensor values = zero ? at::_efficientzerotensor({2, 2}, at::kFloat) : torch::ones({2, 2})._neg_view();
    const at::Tensor table = share_memory_(torch::zeros({3, 2}));
    table.mutable_grad() = at::_sparse_coo_tensor_unsafe(rows, values, {3, 2});
    hogwild::SGD optimizer(std::vector<at::Tensor>{table}, {.lr = 1});
    optimizer.step();
    const float moved = zero ? 0 : 1;
    CHECK(torch::equal(table, torch::tensor({{moved, moved}, {0.f, 0.f}, {moved, moved}})));
  }
}

TEST_CASE("hogwild: clipping sparse gradients leaves the parameter's gradient as it was") {
  for (const bool by_value : {true, false}) {
    const at::Tensor table = share_memory_(torch::zeros({4, 1}));
    const at::Tensor values = torch::tensor({{3.f}, {4.f}, {-1.f}, {1.f}});
    table.mutable_grad() = torch::sparse_coo_tensor(torch::tensor({{2, 0, 3, 3}}, at::kLong), values, {4, 1});
    hogwild::SharingOptions sharing;
    (by_value ? sharing.clip_grad_value : sharing.clip_grad_norm) = 1.0;
    hogwild::SGD optimizer(std::vector<at::Tensor>{table}, {.lr = 1}, sharing);
    optimizer.step();
    // Row 3 adds up to 0, so that the norm is that of 3 and 4.
    const at::Tensor wanted =
        by_value ? torch::tensor({{-1.f}, {0.f}, {-1.f}, {0.f}}) : torch::tensor({{-0.8f}, {0.f}, {-0.6f}, {0.f}});
    CHECK(torch::allclose(table, wanted, 1e-5, 1e-6));
    CHECK(torch::equal(table.grad()._values(), torch::tensor({{3.f}, {4.f}, {-1.f}, {1.f}})));
  }
}

TEST_CASE("hogwild: a sparse gradient without rows has no part in any norm") {
  for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    INFO(type);
    const at::Tensor table = share_memory_(torch::zeros({4, 2})), dense = share_memory_(torch::zeros({1}));
    table.mutable_grad() = torch::sparse_coo_tensor(torch::empty({1, 0}, at::kLong), torch::empty({0, 2}), {4, 2});
    hogwild::SGD optimizer(std::vector<at::Tensor>{table, dense}, {.lr = 1},
                           {.clip_grad_norm = 1.0, .clip_grad_norm_type = type});
    optimizer.step();  // there is no other gradient
    dense.mutable_grad() = torch::full({1}, 4.f);
    optimizer.step();
    CHECK(torch::allclose(dense, torch::full({1}, -1.f)));
    CHECK(torch::equal(table, torch::zeros({4, 2})));
    CHECK(optimizer.steps() == 2);
  }
}

TEST_CASE("hogwild: sparse values that lie in a parameter's memory are those from before the step") {
  const at::Tensor rows = torch::tensor({3, 2, 1, 0}, at::kLong);
  const at::Tensor before = torch::arange(1, 9, at::kFloat).view({4, 2});
  for (const bool own : {true, false}) {
    INFO((own ? "its own memory" : "another parameter's, which is updated first"));
    const at::Tensor other = share_memory_(before.clone()), table = share_memory_(before.clone());
    other.mutable_grad() = torch::ones({4, 2});
    table.mutable_grad() = torch::sparse_coo_tensor(rows.unsqueeze(0), (own ? table : other).detach(), {4, 2});
    CHECK(table.grad()._values().is_alias_of(own ? table : other));
    const std::vector<hogwild::ParamGroup<hogwild::SGDOptions>> groups{{.params = {other}, .options = {.lr = 1}},
                                                                       {.params = {table}, .options = {.lr = 1}}};
    hogwild::SGD optimizer(groups);
    optimizer.step();
    CHECK(torch::equal(other, before - 1));
    CHECK(torch::equal(table, before - before.index_select(0, rows)));
  }
}

}  // namespace sparse_rows_test
