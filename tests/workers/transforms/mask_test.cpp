// Masks that go through the same draws as their pictures.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/transforms/transforms.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

at::Tensor random_mask(at::IntArrayRef sizes, at::ScalarType type = at::kByte) {
  return at::randint(0, 21, sizes, at::TensorOptions(at::kLong)).to(type);
}

// A picture whose pixels are the mask's: where the steps take pixels, and do not mix them, so is what comes out.
at::Tensor as_picture(const at::Tensor& mask) { return mask.unsqueeze(0).expand({3, -1, -1}).contiguous(); }

auto moving() {
  return Compose{RandomCrop{.size = {20, 24}, .padding = {5}, .padding_mode = PaddingMode::reflect},
                 RandomHorizontalFlip{}, Compose{CenterCrop{{16, 30}}, RandomHorizontalFlip{}},
                 RandomCrop{.size = {17, 19}, .padding = {3}, .fill = 9}};
}

struct Segmentation {  // of sizes that differ
  at::Tensor masks;
  std::int64_t size() const { return masks.size(0); }
  Example get(std::int64_t i) const {
    const at::Tensor mask = masks[i].narrow(0, 0, 30 + i).contiguous();
    return {as_picture(mask), mask};
  }
};

}  // namespace

TEST_CASE("mask: goes where its picture's pixels go, by the same draws, in every sample") {
  const at::Tensor mask = random_mask({33, 41});
  bool flipped = false, straight = false;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const SampleKey key{3, 1, i};
    CHECK(transform_mask(moving(), mask, key).equal(transform_image(moving(), as_picture(mask), key)[0]));
    const at::Tensor once = transform_mask(RandomHorizontalFlip{}, mask, key);
    (once.equal(mask) ? straight : flipped) = true;
  }
  CHECK((flipped && straight));
}

TEST_CASE("mask: every way of padding, and parts that reach over the edge, as for pictures") {
  const at::Tensor mask = random_mask({7, 6});
  for (const PaddingMode mode :
       {PaddingMode::constant, PaddingMode::edge, PaddingMode::reflect, PaddingMode::symmetric}) {
    const RandomCrop crop{.size = {9, 8}, .padding = {4, 3, 5, 2}, .fill = 200, .padding_mode = mode};
    for (std::uint64_t i = 0; i < 30; ++i)
      CHECK(transform_mask(crop, mask, {1, 1, i}).equal(transform_image(crop, as_picture(mask), {1, 1, i})[0]));
  }
  CHECK(transform_mask(CenterCrop{{12, 4}}, mask, {})
            .equal(transform_image(CenterCrop{{12, 4}}, as_picture(mask), {})[0]));
}

TEST_CASE("mask: is resized to the nearest pixels, torch's, for whatever sizes") {
  for (const std::int64_t height : {1, 2, 13, 31, 100, 333})
    for (const std::int64_t width : {1, 7, 45, 224}) {
      const at::Tensor mask = random_mask({31, 45});
      const std::vector<std::int64_t> size = {height, width};
      const at::Tensor theirs = at::upsample_nearest2d(mask.to(at::kFloat).view({1, 1, 31, 45}), size)[0][0];
      CHECK(transform_mask(Resize{.size = {height, width}}, mask, {}).to(at::kFloat).equal(theirs));
    }
}

TEST_CASE("mask: of a random resized crop it is the part that the picture's is, to the nearest") {
  const RandomResizedCrop crop{.size = {16, 20}};
  const at::Tensor mask = random_mask({40, 50}, at::kLong);
  for (std::uint64_t i = 0; i < 40; ++i) {
    SampleRandom random = Draws{{3, 4, i}}.random();
    const ImagePart part = random_part(crop, {40, 50}, random);
    const at::Tensor cut = mask.narrow(0, part.top, part.height).narrow(1, part.left, part.width).contiguous();
    CHECK(transform_mask(crop, mask, {3, 4, i}).equal(transform_mask(Resize{.size = {16, 20}}, cut, {})));
  }
}

TEST_CASE("mask: any type, with and without channels; the type stays") {
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor mask = random_mask({2, 12, 10}, type);
    const at::Tensor out = transform_mask(RandomHorizontalFlip{.p = 1}, mask, {});
    CHECK(out.scalar_type() == type);
    CHECK(out.equal(mask.flip(2)));
    CHECK(transform_mask(RandomHorizontalFlip{.p = 1}, mask[1], {}).equal(mask[1].flip(1)));
    CHECK(transform_mask(RandomHorizontalFlip{.p = 1}, mask.transpose(1, 2), {}).equal(mask.transpose(1, 2).flip(2)));
  }
}

TEST_CASE("mask: unsigned numbers of any length are moved; what is no number is refused") {
  const at::Tensor mask = random_mask({2, 12, 10}, at::kLong);
  const RandomCrop around{.size = {14, 12}, .padding = {1}, .mask_fill = 255};
  const RandomCrop negative{.size = {14, 12}, .padding = {1}, .mask_fill = -1};
  for (const at::ScalarType type : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    const at::Tensor out = transform_mask(around, mask.to(type), {});
    CHECK(out.scalar_type() == type);
    CHECK(out.to(at::kLong).equal(transform_mask(around, mask, {})));
    CHECK_THROWS_WITH(transform_mask(negative, mask.to(type), {}), ContainsSubstring("has no value -1"));
  }
  CHECK_THROWS_AS(transform_mask(around, mask.to(at::kComplexFloat), {}), std::invalid_argument);
}

TEST_CASE("mask: what turns pictures is refused inside others, too, whatever is drawn") {
  const at::Tensor mask = random_mask({20, 22});
  const RandomApply seldom{{RandomHorizontalFlip{}, RandomRotation{.degrees = {-5, 5}}}, 0};
  const RandomChoice other{{RandomHorizontalFlip{}, TrivialAugment{}}, {1, 0}};
  CHECK_THROWS_WITH(transform_mask(seldom, mask, {}), ContainsSubstring("RandomRotation: a mask is moved by"));
  CHECK_THROWS_WITH(transform_mask(other, mask, {}), ContainsSubstring("TrivialAugment: a mask is moved by"));
}

TEST_CASE("mask: has a fill of its own; of two that meet in a pixel the later one stands") {
  const at::Tensor mask = random_mask({4, 4}, at::kLong);
  const RandomCrop around{.size = {6}, .padding = {1}, .fill = 3, .mask_fill = -100};
  CHECK(transform_mask(around, mask, {}).equal(at::constant_pad_nd(mask, {1, 1, 1, 1}, -100)));
  const auto twice = Compose{around, RandomCrop{.size = {6, 8}, .padding = {1, 0}, .mask_fill = 50}};
  CHECK(transform_mask(twice, mask, {})
            .equal(at::constant_pad_nd(at::constant_pad_nd(mask, {1, 1, 1, 1}, -100), {1, 1}, 50)));
  CHECK_THROWS_WITH(transform_mask(around, mask.to(at::kByte), {}), ContainsSubstring("Byte has no value -100"));
}

TEST_CASE("mask: colours, holes and floats leave it as it is, and change no other draw") {
  const at::Tensor mask = random_mask({20, 22});
  CHECK(
      transform_mask(Compose{ColorJitter{.brightness = {0.5}}, Cutout{.length = 9}, Normalize{{0.5}, {0.5}}}, mask, {})
          .equal(mask));
  const auto plain = Compose{Cutout{.n_holes = 0}, RandomCrop{.size = {9}}};
  const auto coloured = Compose{ColorJitter{.hue = {0.2}}, RandomCrop{.size = {9}}, ToFloat{}};
  CHECK(transform_mask(plain, mask, {1, 2, 3}).equal(transform_mask(coloured, mask, {1, 2, 3})));
}

TEST_CASE("mask: one that is not its picture's is refused with both sizes") {
  CHECK_THROWS_WITH(transform_mask(RandomHorizontalFlip{}, random_mask({5, 6}), ImageShape{3, 6, 6}, {}),
                    ContainsSubstring("a picture of 6 x 6") && ContainsSubstring("Byte [5, 6]"));
  CHECK_THROWS_AS(transform_mask(RandomHorizontalFlip{}, random_mask({5}), {}), std::invalid_argument);
  CHECK_THROWS_AS(transform_mask(RandomHorizontalFlip{}, at::Tensor(), {}), std::invalid_argument);
}

TEST_CASE("transformed_jointly: pictures and masks of a batch by the same draws, each as it is alone") {
  auto samples = transformed_jointly(Segmentation{random_mask({6, 40, 34})}, moving());
  const std::vector<std::int64_t> indices = {5, 0, 3};
  const EpochScope scope(7, 2);
  const Example batch = samples.get_batch(indices);
  CHECK(batch.target.sizes() == at::IntArrayRef({3, 17, 19}));
  CHECK(batch.target.scalar_type() == at::kByte);
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(batch.data[i][1].equal(batch.target[i]));
    CHECK(samples.get(indices[std::size_t(i)]).target.equal(batch.target[i]));
  }
}

TEST_CASE("transformed_jointly: through a loader with workers, also of pairs, and pictures become floats alone") {
  struct Pairs {
    at::Tensor masks;
    std::int64_t size() const { return masks.size(0); }
    std::pair<at::Tensor, at::Tensor> get(std::int64_t i) const { return {as_picture(masks[i]), masks[i].clone()}; }
  };
  const at::Tensor masks = random_mask({9, 40, 34});
  auto read = [&](int workers) {
    std::vector<at::Tensor> all;
    DataLoader loader({.batch_size = 4, .num_workers = workers, .seed = 3},
                      transformed_jointly(Pairs{masks}, Compose{moving(), ToFloat{}}));
    for (const auto& [pictures, labels] : loader) {
      CHECK(pictures.select(1, 0).mul(255).round().to(at::kByte).equal(labels));
      all.push_back(labels.clone());
    }
    return all;
  };
  const auto without = read(0), with = read(2);
  REQUIRE(without.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(with[i].equal(without[i]));
}

TEST_CASE("transformed_jointly: masks that stay unequal are an error with both shapes") {
  auto samples =
      transformed_jointly(Segmentation{random_mask({6, 40, 34})}, Compose{CenterCrop{{20}}, Normalize{{0.5}, {0.5}}});
  const std::vector<std::int64_t> indices = {1, 2};
  CHECK(samples.get_batch(indices).target.sizes() == at::IntArrayRef({2, 20, 20}));
  struct TypesDiffer {
    std::int64_t size() const { return 2; }
    Example get(std::int64_t i) const {
      const at::Tensor mask = random_mask({8, 8}, i == 0 ? at::kByte : at::kLong);
      return {as_picture(mask.to(at::kByte)), mask};
    }
  };
  auto differ = transformed_jointly(TypesDiffer{}, RandomHorizontalFlip{});
  const std::vector<std::int64_t> both = {0, 1};
  CHECK_THROWS_WITH(differ.get_batch(both), ContainsSubstring("Long [8, 8]") && ContainsSubstring("Byte [8, 8]"));
}
