#include <shoal/workers/data/collate.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/pad_sequence.h>

#include <optional>

#include "tests/support/catch.h"

using shoal::collate;
using shoal::Example;

namespace {

struct Nested {
  Example example;
  std::vector<at::Tensor> boxes;
  std::map<std::string, at::Tensor> extra;
};
struct WithNumber {
  at::Tensor image;
  std::int64_t label;
};

template <class T>
concept CanCollate = shoal::Collatable<T>;
static_assert(CanCollate<Nested>);
static_assert(!CanCollate<WithNumber>);  // its batch would need another type for `label`
static_assert(!CanCollate<std::optional<void*>>);
static_assert(!CanCollate<void*>);

at::Tensor filled(double value, at::IntArrayRef sizes) { return at::full(sizes, value); }

}  // namespace

TEST_CASE("collate: tensors are stacked along a new first dimension") {
  const at::Tensor batch = collate(std::vector<at::Tensor>{filled(1, {2, 3}), filled(2, {2, 3})});
  CHECK(batch.sizes() == at::IntArrayRef({2, 2, 3}));
  CHECK(batch.select(0, 1).eq(2).all().item<bool>());
}

TEST_CASE("collate: numbers become a tensor of one dimension and their own type") {
  const at::Tensor longs = collate(std::vector<std::int64_t>{3, 1, 2});
  CHECK(longs.scalar_type() == at::kLong);
  CHECK(longs[2].item<std::int64_t>() == 2);
  CHECK(collate(std::vector<float>{0.5F})[0].item<float>() == 0.5F);
  CHECK(collate(std::vector<double>{1}).scalar_type() == at::kDouble);
  CHECK(collate(std::vector<std::uint8_t>{255}).scalar_type() == at::kByte);
  CHECK(collate(std::vector<std::int16_t>{-2})[0].item<std::int16_t>() == -2);
}

TEST_CASE("collate: strings stay strings") {
  CHECK(collate(std::vector<std::string>{"a", "b"}) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("collate: pairs, tuples and arrays become the same of batches") {
  const auto [image, label] =
      collate(std::vector<std::pair<at::Tensor, std::int64_t>>{{filled(0, {2}), 7}, {filled(1, {2}), 8}});
  CHECK(image.sizes() == at::IntArrayRef({2, 2}));
  CHECK(label[1].item<std::int64_t>() == 8);

  const auto [number, name, flag] =
      collate(std::vector<std::tuple<double, std::string, bool>>{{1.5, "x", true}, {2.5, "y", false}});
  CHECK(number[1].item<double>() == 2.5);
  CHECK(name[1] == "y");
  CHECK(flag.scalar_type() == at::kBool);

  const std::array<at::Tensor, 2> both =
      collate(std::vector<std::array<at::Tensor, 2>>{{filled(0, {1}), filled(1, {3})}});
  CHECK(both[1].sizes() == at::IntArrayRef({1, 3}));
}

TEST_CASE("collate: vectors are transposed, maps keep their keys") {
  const auto columns =
      collate(std::vector<std::vector<at::Tensor>>{{filled(0, {1}), filled(1, {2})}, {filled(2, {1}), filled(3, {2})}});
  REQUIRE(columns.size() == 2);
  CHECK(columns[1].sizes() == at::IntArrayRef({2, 2}));
  CHECK(columns[1][1][0].item<float>() == 3);

  const auto named = collate(std::vector<std::map<std::string, float>>{{{"a", 1}, {"b", 2}}, {{"a", 3}, {"b", 4}}});
  CHECK(named.at("b")[1].item<float>() == 4);
}

TEST_CASE("collate: an aggregate of tensors becomes the same aggregate, nested ones too") {
  const Example batch =
      collate(std::vector<Example>{{filled(0, {28, 28}), filled(3, {})}, {filled(1, {28, 28}), filled(4, {})}});
  CHECK(batch.data.sizes() == at::IntArrayRef({2, 28, 28}));
  CHECK(batch.target.sizes() == at::IntArrayRef({2}));

  const Nested sample{{filled(0, {2}), filled(0, {})}, {filled(0, {4})}, {{"weight", filled(1, {})}}};
  const Nested nested = collate(std::vector<Nested>{sample, sample, sample});
  CHECK(nested.example.data.sizes() == at::IntArrayRef({3, 2}));
  CHECK(nested.boxes.at(0).sizes() == at::IntArrayRef({3, 4}));
  CHECK(nested.extra.at("weight").sizes() == at::IntArrayRef({3}));
}

TEST_CASE("collate: samples that do not fit together are named with both shapes") {
  CHECK_THROWS_WITH(collate(std::vector<at::Tensor>{filled(0, {2, 3}), filled(0, {2, 3}), filled(0, {2, 4})}),
                    ContainsSubstring("[2, 3] in sample 0") && ContainsSubstring("[2, 4] in sample 2"));
  CHECK_THROWS_AS(collate(std::vector<at::Tensor>{filled(0, {1}), filled(0, {2})}), std::invalid_argument);
  CHECK_THROWS_WITH(collate(std::vector<std::pair<int, Example>>{{1, {filled(0, {1}), filled(0, {1})}},
                                                                 {2, {filled(0, {1}), filled(0, {5})}}}),
                    ContainsSubstring("sample.second member 1") && ContainsSubstring("[5] in sample 1"));
  CHECK_THROWS_WITH(collate(std::vector<at::Tensor>{filled(0, {1}), at::Tensor()}),
                    ContainsSubstring("sample 1") && ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(collate(std::vector<std::vector<int>>{{1, 2}, {1}}),
                    ContainsSubstring("2 elements in sample 0") && ContainsSubstring("1 in sample 1"));
  CHECK_THROWS_WITH(collate(std::vector<std::map<std::string, int>>{{{"a", 1}}, {{"b", 1}}}),
                    ContainsSubstring("\"a\"") && ContainsSubstring("sample 1"));
  CHECK_THROWS_AS(collate(std::vector<at::Tensor>{}), std::invalid_argument);
}

TEST_CASE("tensor_dataset: gives rows one by one or a batch at once") {
  const auto dataset = shoal::tensor_dataset(at::arange(12).reshape({6, 2}), at::arange(6));
  CHECK(shoal::dataset_size(dataset) == 6);
  const auto [x, y] = dataset.get(4);
  CHECK(x[0].item<std::int64_t>() == 8);
  CHECK(y.item<std::int64_t>() == 4);

  const std::vector<std::int64_t> indices{5, 0, 5};
  const auto [xs, ys] = dataset.get_batch(indices);
  CHECK(xs.sizes() == at::IntArrayRef({3, 2}));
  CHECK(ys[1].item<std::int64_t>() == 0);
  CHECK(xs[2][1].item<std::int64_t>() == 11);
  CHECK_FALSE(xs.is_alias_of(dataset.tensors[0]));
}

TEST_CASE("tensor_dataset: refuses tensors of different length and indices out of range, by value") {
  CHECK_THROWS_WITH(shoal::tensor_dataset(at::zeros({3, 1}), at::zeros({4})),
                    ContainsSubstring("4 rows") && ContainsSubstring("has 3"));
  CHECK_THROWS_AS(shoal::tensor_dataset(at::zeros({})), std::invalid_argument);
  const auto dataset = shoal::tensor_dataset(at::zeros({3}));
  CHECK_THROWS_WITH(dataset.get(3), ContainsSubstring("index 3") && ContainsSubstring("3 samples"));
  const std::vector<std::int64_t> indices{0, -1};
  CHECK_THROWS_AS(dataset.get_batch(indices), std::out_of_range);
}

TEST_CASE("dataset_size: understands libtorch's optional sizes") {
  struct Sized {
    std::optional<std::size_t> size() const { return 5; }
    at::Tensor get(std::size_t) { return {}; }
  };
  struct Unsized {
    std::optional<std::size_t> size() const { return std::nullopt; }
    at::Tensor get(std::size_t) { return {}; }
  };
  Sized sized;
  Unsized unsized;
  CHECK(shoal::dataset_size(sized) == 5);
  CHECK_THROWS_AS(shoal::dataset_size(unsized), std::invalid_argument);
}

namespace {

enum class Kind : std::uint8_t { cat, dog = 7 };

struct Labelled {
  at::Tensor image;
  std::int64_t label;
  std::optional<std::string> note;
  struct Batch {
    at::Tensor image;
    at::Tensor label;
    std::optional<std::vector<std::string>> note;
  };
};
struct ToldWrong {  // its batch has no place for the label
  at::Tensor image;
  std::int64_t label;
  struct Batch {
    at::Tensor image;
  };
};
struct Text {
  shoal::Sequence words;
  float score;
  struct Batch {
    shoal::PaddedSequences words;
    at::Tensor score;
  };
};
static_assert(CanCollate<Labelled> && CanCollate<Text>);
static_assert(!CanCollate<ToldWrong>);

at::Tensor sequence(std::vector<std::int64_t> values) { return at::tensor(values); }

}  // namespace

TEST_CASE("collate: optionals are collated where all samples have a value, or none has") {
  using Maybe = std::optional<std::int64_t>;
  CHECK(collate(std::vector<Maybe>{3, 4})->sum().item<std::int64_t>() == 7);
  CHECK_FALSE(collate(std::vector<Maybe>{std::nullopt, std::nullopt}).has_value());
  CHECK_THROWS_WITH(collate(std::vector<Maybe>{3, 4, std::nullopt}),
                    ContainsSubstring("a value in sample 0 of the batch, none in sample 2"));
  CHECK_THROWS_WITH(collate(std::vector<Maybe>{std::nullopt, 4}), ContainsSubstring("no value in sample 0"));
}

TEST_CASE("collate: enums become their numbers, maps may have numbers as keys") {
  const at::Tensor kinds = collate(std::vector<Kind>{Kind::dog, Kind::cat});
  CHECK(kinds.scalar_type() == at::kByte);
  CHECK(kinds[0].item<int>() == 7);
  const auto batch = collate(std::vector<std::map<int, double>>{{{1, 0.5}, {9, 2}}, {{1, 1.5}, {9, 3}}});
  CHECK(batch.at(1).sum().item<double>() == 2);
  CHECK_THROWS_WITH(collate(std::vector<std::map<int, double>>{{{1, 0.5}}, {{2, 0.5}}}),
                    ContainsSubstring("has the key 1 in sample 0, but not in sample 1"));
}

TEST_CASE("collate: an aggregate with numbers becomes the batch that it tells") {
  const Labelled::Batch batch = collate(std::vector<Labelled>{{filled(1, {2}), 3, "a"}, {filled(2, {2}), 4, "b"}});
  CHECK(batch.image.sizes() == at::IntArrayRef({2, 2}));
  CHECK(batch.label[1].item<std::int64_t>() == 4);
  CHECK(*batch.note == std::vector<std::string>{"a", "b"});
}

TEST_CASE("collate: sequences are padded to the longest and come with their lengths") {
  const Text::Batch batch =
      collate(std::vector<Text>{{{sequence({1, 2, 3}), -1}, 0.5}, {{sequence({4}), -1}, 1}, {{sequence({}), -1}, 2}});
  CHECK(batch.words.data.equal(at::tensor({1, 2, 3, 4, -1, -1, -1, -1, -1}, at::kLong).view({3, 3})));
  CHECK(batch.words.lengths.equal(at::tensor({3, 1, 0}, at::kLong)));
  CHECK(batch.score.size(0) == 3);
}

TEST_CASE("pad_sequence: gives what libtorch's gives, on either side and either way round") {
  const std::vector<at::Tensor> sequences = {at::rand({3, 2}), at::rand({5, 2}), at::rand({1, 2})};
  for (const bool batch_first : {false, true}) {
    for (const char* side : {"left", "right"}) {
      const auto padded =
          shoal::pad_sequence(sequences, {.batch_first = batch_first, .padding_value = 0.25, .padding_side = side});
      CHECK(padded.data.equal(at::pad_sequence(sequences, batch_first, 0.25, side)));
      CHECK(padded.lengths.equal(at::tensor({3, 5, 1}, at::kLong)));
    }
  }
  CHECK(shoal::pad_sequence(sequences, {.multiple_of = 4}).data.sizes() == at::IntArrayRef({3, 8, 2}));
}

TEST_CASE("pad_sequence: what can't be padded is named") {
  auto pad = [](std::vector<at::Tensor> sequences, shoal::PadOptions options = {}) {
    return shoal::pad_sequence(sequences, options);
  };
  CHECK_THROWS_WITH(pad({filled(0, {3, 2}), filled(0, {3, 4})}),
                    ContainsSubstring("[3, 2], sequence 1 is Float [3, 4]"));
  CHECK_THROWS_WITH(pad({sequence({1}), filled(0, {3})}),
                    ContainsSubstring("sequence 0 is Long [1], sequence 1 is Float"));
  CHECK_THROWS_WITH(pad({at::Tensor()}), ContainsSubstring("sequence 0 has no length"));
  CHECK_THROWS_AS(pad({}), std::invalid_argument);
  CHECK_THROWS_WITH(pad({sequence({1})}, {.padding_side = "top"}), ContainsSubstring("\"top\""));
  CHECK_THROWS_AS(pad({sequence({1})}, {.multiple_of = 0}), std::invalid_argument);
}
