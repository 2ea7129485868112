// What hooks leave out of gradients, while the buckets in which the gradients lie are made anew.
#include <shoal/internal/workers/train/ddp/hooks/rests.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/workers/train/ddp/made_bucket.h"

using namespace shoal;
using namespace shoal::test;

namespace rests_test {

namespace {

using Layout = std::vector<std::vector<std::size_t>>;  // the parameters' numbers, by bucket

std::vector<at::Tensor> some_parameters() {
  std::vector<at::Tensor> parameters;
  for (std::int64_t rows : {3, 1, 4, 2, 5, 1, 6}) parameters.push_back(at::zeros({rows, 2}));
  return parameters;
}

/// Parameters in any order, in as many buckets as it comes to; some are in none, as those with sparse gradients are.
Layout some_layout(std::size_t parameters, std::mt19937& random) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::shuffle(order.begin(), order.end(), random);
  Layout layout(1);
  for (const std::size_t number : order) {
    if (random() % 8 == 0) continue;
    if (!layout.back().empty() && random() % 3 == 0) layout.emplace_back();
    layout.back().push_back(number);
  }
  if (layout.back().empty()) layout.pop_back();
  return layout;
}

}  // namespace

TEST_CASE("comm hooks: what is left out stays with its parameter through any buckets, also those of broken steps") {
  for (int seed = 0; seed < 200 * test_scale(); ++seed) {
    CAPTURE(seed);
    std::mt19937 random{unsigned(seed)};
    const std::vector<at::Tensor> parameters = some_parameters();
    std::map<std::size_t, at::Tensor> model;  // what is left out, by number
    Rests rests;
    const auto check_saved = [&] {
      const std::vector<at::Tensor> saved = rests.save(parameters);
      for (std::size_t number = 0; number < parameters.size(); ++number) {
        CAPTURE(number);
        REQUIRE(saved[number].defined() == model.contains(number));
        if (saved[number].defined()) REQUIRE(at::equal(saved[number], model[number]));
      }
    };
    Layout layout = some_layout(parameters.size(), random);
    for (int step = 0; step < 12; ++step) {
      if (random() % 2 == 0) layout = some_layout(parameters.size(), random);
      // A sparse gradient's bucket comes in between, of which the hook asks for nothing.
      const std::size_t sparse = random() % (layout.size() + 2);
      const std::size_t ends_behind = random() % 3 == 0 ? random() % (layout.size() + 1) : layout.size();
      for (std::size_t i = 0; i < ends_behind; ++i) {
        std::vector<at::Tensor> in_bucket;
        for (const std::size_t number : layout[i]) in_bucket.push_back(parameters[number]);
        const MadeBucket bucket({.index = i + (i >= sparse ? 1 : 0)}, layout.size() + (sparse <= layout.size() ? 1 : 0),
                                in_bucket);
        at::Tensor& left_out = rests.of(*bucket);
        REQUIRE(left_out.sizes() == bucket.buffer().sizes());
        std::int64_t at = 0;
        for (const std::size_t number : layout[i]) {
          const std::int64_t elements = parameters[number].numel();
          const at::Tensor part = left_out.narrow(0, at, elements);
          REQUIRE(at::equal(part, model.contains(number) ? model[number] : at::zeros({elements})));
          part.copy_(at::rand({elements}));
          model[number] = part.clone();
          at += elements;
        }
      }
      check_saved();
      if (random() % 6 == 0) {  // the training goes on elsewhere
        const std::vector<at::Tensor> saved = rests.save(parameters);
        rests = Rests();
        rests.load(saved, parameters);
        check_saved();
      }
    }
  }
}

TEST_CASE("comm hooks: what was loaded is a copy, and takes the place of all that there was") {
  const std::vector<at::Tensor> parameters{at::zeros({2}), at::zeros({3})};
  Rests rests;
  rests.of(*MadeBucket({}, 1, parameters)).fill_(7);
  const at::Tensor loaded = at::ones({3});
  rests.load({at::Tensor(), loaded}, parameters);
  loaded.fill_(5);
  const std::vector<at::Tensor> saved = rests.save(parameters);
  CHECK_FALSE(saved[0].defined());
  CHECK(at::equal(saved[1], at::ones({3})));
  CHECK(at::equal(rests.of(*MadeBucket({}, 1, parameters)), at::tensor({0.F, 0.F, 1.F, 1.F, 1.F})));
}

}  // namespace rests_test
