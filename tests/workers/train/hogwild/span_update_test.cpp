// The loops over elements of one step: the same bits by vectors of every width, from any place, and nothing beside.
#include <shoal/internal/workers/train/hogwild/span_update.h>

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/support/catch.h"

namespace span_update_test {

using namespace shoal::hogwild;

namespace {

std::vector<Numbers> numbers_of(Rule rule) {
  const Numbers plain{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .alpha = 0.9};
  Numbers full = plain;
  full.weight_decay = 0.1;
  full.momentum = 0.7;
  full.nesterov = rule == Rule::sgd;
  full.amsgrad = full.centered = true;
  full.lr_decay = 0.01;
  Numbers half = full;
  half.maximize = true;
  half.nesterov = half.amsgrad = half.centered = false;
  half.dampening = 0.3;
  return {plain, full, half};
}

/// Parameter, gradient and what is kept. Squares are positive, and those of RMSprop larger than its mean's.
std::vector<at::Tensor> start(at::ScalarType type, std::int64_t elements) {
  torch::manual_seed(7);
  const auto drawn = [&] { return torch::randn({elements}, at::kDouble); };
  std::vector<at::Tensor> tensors{drawn(), drawn(), drawn().abs() + 4, drawn().abs() + 1, drawn().abs().clamp_max(1)};
  for (at::Tensor& tensor : tensors) tensor = tensor.to(type);
  return tensors;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST_CASE("hogwild: loops of every width do the same to the bit, in their span alone") {
  using Width = SpanUpdate::Width;
  constexpr std::int64_t kElements = 90;
  for (const Rule rule : {Rule::sgd, Rule::adam, Rule::adamw, Rule::adagrad, Rule::rmsprop})
    for (const Numbers& numbers : numbers_of(rule))
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
        for (const std::int64_t from : {0, 1, 5})
          for (const std::int64_t size : {0, 1, 7, 16, 33, 64, 80})
            for (const std::int64_t step : {1, 3}) {
              std::vector<at::Tensor> wanted;
              for (const Width width : {Width::plain, Width::bytes_32, Width::bytes_64}) {
                const std::vector<at::Tensor> before = start(type, kElements), its = start(type, kElements);
                const auto place = [&](std::size_t i) {
                  return static_cast<std::byte*>(its[i].data_ptr()) + from * std::int64_t(its[i].element_size());
                };
                const SpanUpdate update(rule, numbers, 0.01, step, type, width);
                update({.parameter = place(0),
                        .gradient = place(1),
                        .kept = {place(2), place(3), place(4)},
                        .size = size});
                for (std::size_t i = 0; i < its.size(); ++i) {
                  REQUIRE(same_bits(its[i].narrow(0, 0, from), before[i].narrow(0, 0, from)));
                  REQUIRE(same_bits(its[i].narrow(0, from + size, kElements - from - size).clone(),
                                    before[i].narrow(0, from + size, kElements - from - size).clone()));
                }
                if (size > 0 && (type == at::kFloat || type == at::kDouble))
                  REQUIRE_FALSE(same_bits(its[0], before[0]));
                if (width == Width::plain) wanted = its;
                for (std::size_t i = 0; i < its.size(); ++i) REQUIRE(same_bits(its[i], wanted[i]));
              }
            }
}

}  // namespace span_update_test
