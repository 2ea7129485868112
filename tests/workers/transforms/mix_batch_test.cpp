// mix_up and cut_mix: every number of a mixed batch says which pictures it is of.
#include <shoal/workers/transforms/mix_batch.h>

#include <torch/torch.h>

#include <set>
#include <string>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

/// Picture i is i everywhere, and its class is i.
at::Tensor pictures(std::int64_t count, at::ScalarType type = at::kDouble) {
  return torch::arange(count).to(type).view({count, 1, 1, 1}).expand({count, 3, 8, 10}).contiguous();
}

const MixOptions kFive{.alpha = 1, .num_classes = 5};

}  // namespace

TEST_CASE("mix_up: pictures and labels have the same shares of the same two, and one share is for all") {
  const at::Tensor images = pictures(5), labels = torch::arange(5);
  std::set<double> seen;
  for (std::uint64_t batch = 0; batch < 20; ++batch) {
    const auto [mixed, shares] = mix_up(images, labels, kFive, {3, 1, batch});
    REQUIRE(mixed.sizes() == images.sizes());
    REQUIRE(shares.sizes() == at::IntArrayRef{5, 5});
    CHECK(shares.scalar_type() == at::kFloat);
    const double own = shares[0][0].item<double>();
    CHECK(own >= 0);
    CHECK(own <= 1);
    seen.insert(own);
    for (std::int64_t i = 0; i < 5; ++i) {
      const std::int64_t other = (i + 4) % 5;
      CHECK(torch::allclose(mixed[i], torch::full({3, 8, 10}, own * double(i) + (1 - own) * double(other), at::kDouble),
                            1e-6, 1e-6));
      CHECK(std::abs(shares[i][i].item<double>() - own) < 1e-6);
      CHECK(std::abs(shares[i][other].item<double>() - (1 - own)) < 1e-6);
    }
    CHECK(torch::allclose(shares.sum(1), torch::ones({5})));
    CHECK(torch::equal(mix_up(images, labels, kFive, {3, 1, batch}).images, mixed));
  }
  CHECK(seen.size() == 20);
  CHECK(torch::equal(images, pictures(5)));
}

TEST_CASE("mix_up: a small alpha mixes little, a large one halves") {
  const at::Tensor images = pictures(5), labels = torch::arange(5);
  int extremes = 0, halves = 0;
  for (std::uint64_t batch = 0; batch < 200; ++batch) {
    const double little =
        mix_up(images, labels, {.alpha = 0.01, .num_classes = 5}, {1, 0, batch}).labels[0][0].item<double>();
    const double even =
        mix_up(images, labels, {.alpha = 1000, .num_classes = 5}, {1, 0, batch}).labels[0][0].item<double>();
    extremes += little < 0.01 || little > 0.99;
    halves += even > 0.4 && even < 0.6;
  }
  CHECK(extremes > 150);
  CHECK(halves == 200);
}

TEST_CASE("cut_mix: a box is the other's, and labels have the shares of the pixels") {
  const at::ScalarType type = GENERATE(at::kByte, at::kFloat);
  const at::Tensor images = pictures(5, type), labels = torch::arange(5);
  std::set<double> seen;
  for (std::uint64_t batch = 0; batch < 30; ++batch) {
    const auto [mixed, shares] = cut_mix(images, labels, kFive, {9, 0, batch});
    CHECK(mixed.scalar_type() == type);
    const at::Tensor other = mixed.eq(images).logical_not();
    // The same box in each channel of each picture: a rectangle.
    const at::Tensor box = other[0][0];
    CHECK(torch::equal(other, box.expand_as(other)));
    const at::Tensor rows = box.any(1), columns = box.any(0);
    CHECK(torch::equal(box, rows.unsqueeze(1).logical_and(columns.unsqueeze(0))));
    CHECK(torch::equal(mixed.masked_select(other), images.roll(1, 0).masked_select(other)));
    const double own = 1 - box.sum().item<double>() / 80;
    seen.insert(own);
    for (std::int64_t i = 0; i < 5; ++i) {
      CHECK(std::abs(shares[i][i].item<double>() - own) < 1e-6);
      CHECK(std::abs(shares[i][(i + 4) % 5].item<double>() - (1 - own)) < 1e-6);
    }
  }
  CHECK(seen.size() > 10);
}

TEST_CASE("mix_up, cut_mix: labels that are shares stay shares; one picture stays what it is; none is none") {
  const at::Tensor images = pictures(3), shares = torch::rand({3, 4}, at::kDouble).softmax(1);
  CHECK(torch::allclose(mix_up(images, shares, {}, {}).labels.sum(1), torch::ones({3}, at::kDouble)));
  CHECK(torch::allclose(mix_up(pictures(1), shares.narrow(0, 0, 1), {}, {}).labels, shares.narrow(0, 0, 1)));
  CHECK(torch::equal(cut_mix(pictures(1), torch::zeros({1}, at::kLong), kFive, {}).images, pictures(1)));
  for (const auto mix : {mix_up, cut_mix}) {
    const MixedBatch none = mix(pictures(0), torch::zeros({0}, at::kLong), kFive, {});
    CHECK(none.images.sizes() == at::IntArrayRef{0, 3, 8, 10});
    CHECK(none.labels.sizes() == at::IntArrayRef{0, 5});
  }
}

TEST_CASE("mix_up, cut_mix: what cannot be mixed is refused") {
  const at::Tensor images = pictures(3), labels = torch::arange(3);
  const auto refused = [](auto mix, const at::Tensor& x, const at::Tensor& y, const MixOptions& options) {
    try {
      (void)mix(x, y, options, SampleKey{});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK_THAT(refused(mix_up, images.to(at::kByte), labels, kFive), ContainsSubstring("images are Byte"));
  CHECK_THAT(refused(mix_up, images, torch::arange(4), kFive),
             ContainsSubstring("[3, 3, 8, 10]") && ContainsSubstring("[4]"));
  CHECK_THAT(refused(mix_up, images, labels, {}), ContainsSubstring("set num_classes"));
  CHECK_THAT(refused(mix_up, images, labels, {.num_classes = 2}),
             ContainsSubstring("from 0 to 2, and num_classes is 2"));
  CHECK_THAT(refused(mix_up, images, labels.to(at::kInt), kFive), ContainsSubstring("labels are Int"));
  for (const double alpha : {0.0, -1.0, double(NAN)})
    CHECK_THAT(refused(mix_up, images, labels, {.alpha = alpha, .num_classes = 5}), ContainsSubstring("alpha is"));
  CHECK_THAT(refused(cut_mix, images[0], labels, kFive), ContainsSubstring("[3, 8, 10]"));
  CHECK_THAT(refused(mix_up, at::Tensor(), labels, kFive), ContainsSubstring("undefined"));
}
