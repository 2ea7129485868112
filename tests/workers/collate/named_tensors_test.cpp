// NamedTensors: a map with another at(), alone, in messages and in batches.
#include <shoal/workers/data/named_tensors.h>

#include <ATen/ATen.h>
#include <shoal/ipc/queue.h>

#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

static_assert(!std::is_aggregate_v<NamedTensors>, "collate and messages would take its base for a member");

TEST_CASE("named tensors: at() says which name was asked for, and which there are") {
  NamedTensors sample{{"image", at::ones({2})}, {"label", at::zeros({1})}};
  sample.at("label") = at::ones({3});
  CHECK(std::as_const(sample).at("label").size(0) == 3);
  CHECK_THROWS_WITH(sample.at("picture"), R"(no tensor is named "picture"; there are ["image", "label"])");
  CHECK_THROWS_AS(std::as_const(sample).at("Image"), std::out_of_range);
  CHECK(sample.size() == 2);
  CHECK_THROWS_WITH(NamedTensors().at("x"), R"(no tensor is named "x"; there are [])");
  sample["mask"] = at::ones({1});  // all else is a map's
  const std::map<std::string, at::Tensor> map = sample;
  CHECK(map.contains("mask"));
}

TEST_CASE("named tensors: they cross as messages, and a batch of them is one") {
  Queue<NamedTensors> queue;
  queue.put(NamedTensors{{"a", at::arange(3)}});
  CHECK(queue.get().at("a").equal(at::arange(3)));
  const NamedTensors batch = collate(std::vector<NamedTensors>{{{"a", at::ones({2})}, {"b", at::ones({1})}},
                                                               {{"a", at::zeros({2})}, {"b", at::ones({1})}}});
  CHECK(batch.at("a").sizes().vec() == std::vector<std::int64_t>{2, 2});
  CHECK(batch.at("b").size(0) == 2);
  CHECK_THROWS_WITH(collate(std::vector<NamedTensors>{{{"a", at::ones({2})}}, {{"b", at::ones({2})}}}),
                    ContainsSubstring("the key \"a\" in sample 0, but not in sample 1"));
}
