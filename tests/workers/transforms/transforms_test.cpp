#include <shoal/workers/transforms/transforms.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/zeros.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/codec.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/allocations.h"

using shoal::ColorJitter;
using shoal::Compose;
using shoal::ImageShape;
using shoal::Normalize;
using shoal::PaddingMode;
using shoal::RandomCrop;
using shoal::RandomHorizontalFlip;
using shoal::Resize;
using shoal::SampleKey;
using shoal::transform_batch;
using shoal::transform_image;

namespace shoal::test {
thread_local std::int64_t allocations = 0, allocated_bytes = 0;
}
using shoal::test::allocations;

// Counts what this program allocates.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  shoal::test::allocated_bytes += std::int64_t(size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

at::Tensor any_images(at::IntArrayRef sizes) { return at::randint(0, 256, sizes, at::TensorOptions(at::kByte)); }

std::vector<SampleKey> some_keys(std::size_t count, std::uint64_t epoch = 0) {
  std::vector<SampleKey> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back({1, epoch, i});
  return keys;
}

std::int64_t furthest_apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<std::int64_t>();
}

// Where `part` lies in `whole`, both [c, h, w]; how often.
std::vector<std::pair<std::int64_t, std::int64_t>> places(const at::Tensor& whole, const at::Tensor& part) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (std::int64_t y = 0; y + part.size(1) <= whole.size(1); ++y) {
    for (std::int64_t x = 0; x + part.size(2) <= whole.size(2); ++x) {
      if (whole.narrow(1, y, part.size(1)).narrow(2, x, part.size(2)).equal(part)) found.emplace_back(y, x);
    }
  }
  return found;
}

auto standard() {
  return Compose{RandomCrop{.size = {24}, .padding = {4}}, RandomHorizontalFlip{}, shoal::Cutout{.length = 6},
                 ColorJitter{.brightness = {0.4}, .contrast = {0.4}, .saturation = {0.4}, .hue = {0.1}}};
}

static_assert(shoal::Encodable<decltype(standard())>);
static_assert(shoal::ByteTransform<RandomHorizontalFlip> && shoal::TensorTransform<Normalize>);
static_assert(!shoal::ImageTransform<int>);

}  // namespace

TEST_CASE("flip: mirrors with p = 1, copies with p = 0, both with 0.5, whatever the width") {
  for (const std::int64_t width : {1, 2, 15, 16, 17, 33, 224}) {
    const at::Tensor image = any_images({3, 5, width});
    CHECK(transform_image(RandomHorizontalFlip{.p = 1}, image, {}).equal(image.flip(2)));
    CHECK(transform_image(RandomHorizontalFlip{.p = 0}, image, {}).equal(image));
  }
  const at::Tensor batch = any_images({400, 1, 2, 3});
  const at::Tensor out = transform_batch(RandomHorizontalFlip{}, batch, some_keys(400));
  int flipped = 0;
  for (std::int64_t i = 0; i < 400; ++i) flipped += out[i].equal(batch[i].flip(2)) ? 1 : 0;
  CHECK(std::abs(flipped - 200) < 60);
  CHECK_THROWS_WITH(transform_batch(RandomHorizontalFlip{.p = 1.5}, batch, some_keys(400)),
                    ContainsSubstring("p is 1.5"));
}

TEST_CASE("crop: is a part of the picture with its padding, and every part comes up") {
  const at::Tensor image = at::arange(1, 31, at::TensorOptions(at::kByte)).view({1, 5, 6});
  const at::Tensor padded = at::constant_pad_nd(image, {2, 2, 1, 1}, 77);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const RandomCrop crop{.size = {4, 7}, .padding = {2, 1}, .fill = 77};
    const auto found = places(padded, transform_image(crop, image, {1, 2, i}));
    REQUIRE(found.size() == 1);
    seen.insert(found[0]);
  }
  CHECK(seen.size() == 4 * 4);
}

TEST_CASE("crop: the four ways of padding are torch's") {
  const at::Tensor image = any_images({1, 6, 5});
  auto padded = [&](PaddingMode mode) {  // the only part there is
    return transform_image(RandomCrop{.size = {10, 13}, .padding = {3, 2, 5, 2}, .fill = 9, .padding_mode = mode},
                           image, {});
  };
  const at::Tensor floats = image.to(at::kFloat);
  const std::vector<std::int64_t> sides = {3, 5, 2, 2};
  CHECK(padded(PaddingMode::constant).equal(at::constant_pad_nd(image, sides, 9)));
  CHECK(padded(PaddingMode::edge).equal(at::replication_pad2d(floats, sides).to(at::kByte)));
  const at::Tensor reflected = transform_image(
      RandomCrop{.size = {10, 12}, .padding = {3, 2, 4, 2}, .padding_mode = PaddingMode::reflect}, image, {});
  CHECK(reflected.equal(at::reflection_pad2d(floats, {3, 4, 2, 2}).to(at::kByte)));
  const at::Tensor symmetric = padded(PaddingMode::symmetric);
  CHECK(symmetric.narrow(1, 2, 6).narrow(2, 0, 3).equal(image.narrow(2, 0, 3).flip(2)));
  CHECK(symmetric.narrow(1, 2, 6).narrow(2, 8, 5).equal(image.flip(2)));
  CHECK(symmetric.narrow(1, 0, 2).narrow(2, 3, 5).equal(image.narrow(1, 0, 2).flip(1)));
}

TEST_CASE("crop: a picture that is too small is an error with the sizes, or padded if asked for") {
  const at::Tensor image = any_images({3, 5, 6});
  CHECK_THROWS_WITH(transform_image(RandomCrop{.size = {8}, .padding = {1}}, image, {}),
                    ContainsSubstring("8 x 8 of a picture that is 7 x 8"));
  CHECK_THROWS_WITH(transform_image(RandomCrop{}, image, {}), ContainsSubstring("size is 0 x 0"));
  CHECK_THROWS_WITH(transform_image(RandomCrop{.size = {2}, .padding = {-1}}, image, {}),
                    ContainsSubstring("padding -1"));
  const at::Tensor padded = transform_image(RandomCrop{.size = {8}, .pad_if_needed = true}, image, {});
  CHECK(padded.sizes() == at::IntArrayRef({3, 8, 8}));
}

TEST_CASE("center crop: the middle, rounded as torchvision rounds it, zeros where there is nothing") {
  const at::Tensor image = any_images({2, 9, 10});
  auto crop = [&](std::int64_t height, std::int64_t width) {
    return transform_image(shoal::CenterCrop{{height, width}}, image, {});
  };
  CHECK(crop(4, 4).equal(image.narrow(1, 2, 4).narrow(2, 3, 4)));  // round(2.5) is 2
  CHECK(crop(2, 3).equal(image.narrow(1, 4, 2).narrow(2, 4, 3)));  // round(3.5) is 4
  CHECK(crop(9, 10).equal(image));
  CHECK(crop(12, 4).equal(at::constant_pad_nd(image.narrow(2, 3, 4), {0, 0, 1, 2})));
}

TEST_CASE("resize: without antialias it is at::upsample_bilinear2d, with it the antialiased one, rounded") {
  const at::Tensor image = any_images({3, 31, 45});
  const at::Tensor floats = image.to(at::kFloat).unsqueeze(0);
  for (const auto& [height, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {31, 45}, {62, 90}, {16, 20}, {7, 9}, {1, 1}, {50, 13}, {100, 100}, {30, 44}}) {
    const at::Tensor plain = transform_image(Resize{.size = {height, width}, .antialias = false}, image, {});
    const at::Tensor smooth = transform_image(Resize{.size = {height, width}}, image, {});
    const std::vector<std::int64_t> size = {height, width};
    auto differs = [](const at::Tensor& ours, const at::Tensor& theirs) {  // by more than near a tie
      CHECK((ours.to(at::kFloat) - theirs[0]).abs().max().item<float>() < 0.52F);
    };
    differs(plain, at::upsample_bilinear2d(floats, size, false));
    differs(smooth, at::_upsample_bilinear2d_aa(floats, size, false));
  }
}

TEST_CASE("resize: one number is the shorter side, max_size bounds the longer one") {
  auto size = [](Resize resize, std::int64_t height, std::int64_t width) {
    const ImageShape after = resize.output({3, height, width});
    return std::pair(after.height, after.width);
  };
  CHECK(size({{256}}, 480, 640) == std::pair<std::int64_t, std::int64_t>(256, 341));
  CHECK(size({{256}}, 640, 480) == std::pair<std::int64_t, std::int64_t>(341, 256));
  CHECK(size({{256}, 300}, 480, 640) == std::pair<std::int64_t, std::int64_t>(225, 300));
  CHECK(size({{20, 30}}, 480, 640) == std::pair<std::int64_t, std::int64_t>(20, 30));
  CHECK_THROWS_AS(size({{0}}, 480, 640), std::invalid_argument);
  CHECK_THROWS_WITH(size({{256}, 256}, 480, 640), ContainsSubstring("max_size is 256"));
  CHECK_THROWS_AS(size({{20, 30}, 40}, 480, 640), std::invalid_argument);
}

TEST_CASE("random resized crop: parts have the asked area and ratio, lie inside, and are resized") {
  const shoal::RandomResizedCrop crop{.size = {16, 20}};
  for (std::uint64_t i = 0; i < 500; ++i) {
    shoal::SampleRandom random({1, 1, i});
    const auto part = shoal::random_part(crop, {100, 150}, random);
    CHECK((part.top >= 0 && part.left >= 0 && part.top + part.height <= 100 && part.left + part.width <= 150));
    const double area = double(part.height * part.width) / (100 * 150),
                 ratio = double(part.width) / double(part.height);
    CHECK((area > 0.075 && area <= 1));
    CHECK((ratio > 0.72 && ratio < 1.37));
  }
  const at::Tensor image = any_images({3, 40, 50});
  const SampleKey key{3, 4, 5};
  shoal::SampleRandom random = shoal::Draws{key}.random();
  const auto part = shoal::random_part(crop, {40, 50}, random);
  const at::Tensor cut = image.narrow(1, part.top, part.height).narrow(2, part.left, part.width).contiguous();
  CHECK(transform_image(crop, image, key).equal(transform_image(Resize{.size = {16, 20}}, cut, {})));
}

TEST_CASE("random resized crop: a picture too thin for the ratios gives its middle") {
  shoal::SampleRandom random({1, 1, 1});
  const auto wide = shoal::random_part({.size = {8}, .scale = {1, 1}}, {30, 1000}, random);
  CHECK((wide.height == 30 && wide.width == 40 && wide.left == 480));
  const auto tall = shoal::random_part({.size = {8}, .scale = {1, 1}}, {1000, 30}, random);
  CHECK((tall.width == 30 && tall.height == 40 && tall.top == 480));
  CHECK_THROWS_WITH((shoal::RandomResizedCrop{.size = {8}, .scale = {1, 0.5}}.output({3, 9, 9})),
                    ContainsSubstring("scale is 1 to 0.5"));
}

TEST_CASE("cutout: one square around a pixel is filled in all channels, cut off at the edges") {
  const at::Tensor image = at::full({3, 20, 20}, 200, at::TensorOptions(at::kByte));
  for (std::uint64_t i = 0; i < 100; ++i) {
    const at::Tensor out = transform_image(shoal::Cutout{.length = 6, .fill = 1}, image, {1, 1, i});
    const at::Tensor hole = out.eq(1);
    CHECK(hole[0].equal(hole[2]));
    CHECK(out.masked_select(hole.logical_not()).eq(200).all().item<bool>());
    const std::int64_t rows = hole[0].any(1).sum().item<std::int64_t>();
    const std::int64_t columns = hole[0].any(0).sum().item<std::int64_t>();
    CHECK((rows >= 3 && rows <= 6 && columns >= 3 && columns <= 6));
    CHECK(hole[0].sum().item<std::int64_t>() == rows * columns);
  }
  CHECK(transform_image(shoal::Cutout{.n_holes = 0}, image, {}).equal(image));
  CHECK_THROWS_AS(transform_image(shoal::Cutout{.length = -1}, image, {}), std::invalid_argument);
}

TEST_CASE("color: brightness, contrast and saturation are torchvision's formulas") {
  const at::Tensor image = any_images({3, 17, 23});
  const ImageShape shape{3, 17, 23};
  shoal::TransformScratch scratch;
  const at::Tensor floats = image.to(at::kFloat);
  const at::Tensor grey = (floats[0] * 0.2989 + floats[1] * 0.587 + floats[2] * 0.114).floor();
  auto blended = [&](const at::Tensor& other, double factor) {
    return (floats * factor + other * (1 - factor)).clamp(0, 255).to(at::kByte);
  };
  for (const double factor : {0.0, 0.3, 1.0, 1.7}) {
    at::Tensor out = image.clone();
    shoal::adjust_brightness(out.mutable_data_ptr<std::uint8_t>(), shape, factor);
    CHECK(furthest_apart(out, (floats * factor).clamp(0, 255).to(at::kByte)) <= 1);
    out = image.clone();
    shoal::adjust_contrast(out.mutable_data_ptr<std::uint8_t>(), shape, factor, scratch);
    CHECK(furthest_apart(out, blended(grey.mean(), factor)) <= 1);
    out = image.clone();
    shoal::adjust_saturation(out.mutable_data_ptr<std::uint8_t>(), shape, factor, scratch);
    CHECK(furthest_apart(out, blended(grey, factor)) <= 1);
  }
}

TEST_CASE("color: a shift of the hue by a third turns red to green to blue, by nothing changes nothing") {
  at::Tensor colors = at::zeros({3, 1, 4}, at::TensorOptions(at::kByte));
  colors[0][0][0] = 200;          // red
  colors[1][0][1] = 100;          // green
  colors.select(2, 3).fill_(90);  // grey
  at::Tensor out = colors.clone();
  shoal::adjust_hue(out.mutable_data_ptr<std::uint8_t>(), {3, 1, 4}, 1.0 / 3);
  CHECK(std::abs(out[1][0][0].item<int>() - 200) <= 1);
  CHECK(out[0][0][0].item<int>() <= 1);
  CHECK(std::abs(out[2][0][1].item<int>() - 100) <= 1);
  CHECK(out.select(2, 3).equal(colors.select(2, 3)));
  const at::Tensor image = any_images({3, 30, 30});
  out = image.clone();
  shoal::adjust_hue(out.mutable_data_ptr<std::uint8_t>(), {3, 30, 30}, 0);
  CHECK(furthest_apart(out, image) <= 1);
}

TEST_CASE("color jitter: does nothing by default, and names what is out of range") {
  const at::Tensor image = any_images({3, 8, 8});
  CHECK(transform_image(ColorJitter{}, image, {}).equal(image));
  CHECK_FALSE(transform_image(ColorJitter{.brightness = {.range = {{0.2, 0.3}}}}, image, {}).equal(image));
  CHECK_THROWS_WITH(transform_image(ColorJitter{.hue = {0.7}}, image, {}), ContainsSubstring("hue is 0.7"));
  CHECK_THROWS_WITH(transform_image(ColorJitter{.contrast = {-1}}, image, {}), ContainsSubstring("contrast"));
  CHECK_THROWS_WITH(transform_image(ColorJitter{}, any_images({4, 8, 8}), {}), ContainsSubstring("4 channels"));
}

TEST_CASE("normalize: bytes in one pass are (x / 255 - mean) / std, floats the same without the division by 255") {
  const at::Tensor images = any_images({4, 3, 9, 11});
  const Normalize normalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const at::Tensor mean = at::tensor({0.485, 0.456, 0.406}, at::kFloat).view({3, 1, 1});
  const at::Tensor std = at::tensor({0.229, 0.224, 0.225}, at::kFloat).view({3, 1, 1});
  const at::Tensor expected = (images.to(at::kFloat) / 255 - mean) / std;
  CHECK(normalize(images).allclose(expected, 1e-5, 1e-5));
  CHECK(normalize(images.transpose(2, 3)).allclose(expected.transpose(2, 3), 1e-5, 1e-5));  // by libtorch's operations
  CHECK(normalize(shoal::ToFloat{}(images)).allclose(expected, 1e-5, 1e-5));
  CHECK(normalize(images[0]).allclose(expected[0], 1e-5, 1e-5));
  CHECK(shoal::ToFloat{}(images).allclose(images.to(at::kFloat) / 255));
  CHECK(Normalize{{0.5}, {0.25}}(images).allclose((images.to(at::kFloat) / 255 - 0.5) / 0.25, 1e-5, 1e-5));
  CHECK_THROWS_WITH((Normalize{{0.5, 0.5}, {1}}(images)), ContainsSubstring("2 means and 1 stds"));
  CHECK_THROWS_WITH((Normalize{{0.5}, {0}}(images)), ContainsSubstring("std of 0"));
  CHECK_THROWS_WITH(normalize(images.to(at::kLong)), ContainsSubstring("Long"));
}

TEST_CASE("to float16 and bfloat16: in one pass, the float32 result rounded as torch rounds it") {
  const at::Tensor images = any_images({2, 3, 9, 11});
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const Normalize halves{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, type};
    const Normalize floats{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    CHECK(halves(images).scalar_type() == type);
    CHECK(halves(images).equal(floats(images).to(type)));
    CHECK(halves(images.transpose(2, 3)).equal(floats(images.transpose(2, 3)).to(type)));
    CHECK(halves(shoal::ToFloat{}(images)).equal(floats(shoal::ToFloat{}(images)).to(type)));
    CHECK(shoal::ToFloat{type}(images).equal(shoal::ToFloat{}(images).to(type)));
    CHECK(shoal::ToFloat{type}(images.to(at::kFloat)).scalar_type() == type);
    at::Tensor out = at::empty(images.sizes(), at::TensorOptions(type));
    halves.into(images, out);
    CHECK(out.equal(halves(images)));
    CHECK_THROWS_WITH(floats.into(images, out), ContainsSubstring("uint8 and Float"));
  }
  CHECK_THROWS_WITH((Normalize{{0.5}, {1}, at::kDouble}(images)), ContainsSubstring("dtype is Double"));
  CHECK_THROWS_WITH(shoal::ToFloat{at::kInt}(images), ContainsSubstring("dtype is Int"));
}

TEST_CASE("pixel loops: float16 and bfloat16 are torch's for numbers of every size, subnormal, infinite and none") {
  at::Tensor bytes = at::arange(256, at::TensorOptions(at::kByte));
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::pair<float, float>> lines = {{0, 0},           {0, -0.0F},    {1, infinity},
                                                {1, -infinity},   {infinity, 0}, {1e38F, 3e38F},
                                                {-1e38F, -1e38F}, {0x1p-24F, 0}, {0x1p-25F, 0x1p-26F}};
  for (int exponent = -30; exponent < 20; ++exponent)  // halves of the last bit among them
    for (const float offset : {0.0F, 0.37F, -1.0F, 777.25F})
      lines.emplace_back(std::ldexp(1.0F + 1.0F / 512, exponent), std::ldexp(offset, exponent));
  at::Tensor floats = at::empty({256}, at::TensorOptions(at::kFloat));
  for (const auto* loops : {&shoal::PixelLoops::plain(), &shoal::PixelLoops::best()})
    for (const auto& [scale, shift] : lines) {
      CAPTURE(scale, shift);
      const auto* in = bytes.const_data_ptr<std::uint8_t>();
      loops->to_float(in, floats.mutable_data_ptr<float>(), 256, scale, shift);
      for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
        at::Tensor out = at::empty({256}, at::TensorOptions(type));
        auto* to = static_cast<std::uint16_t*>(out.mutable_data_ptr());
        (type == at::kHalf ? loops->to_half : loops->to_bfloat16)(in, to, 256, scale, shift);
        const at::Tensor theirs = floats.to(type);
        const at::Tensor same = out.view(at::kShort).eq(theirs.view(at::kShort));
        // Of what is no number any bits will do.
        CHECK(same.logical_or(out.isnan().logical_and(theirs.isnan())).all().item<bool>());
      }
    }
}

TEST_CASE("compose: is its steps one after the other, tensors after bytes") {
  const at::Tensor batch = any_images({6, 3, 20, 20});
  const auto flips = Compose{RandomHorizontalFlip{1}, shoal::CenterCrop{{10}}, Compose{RandomHorizontalFlip{1}}};
  CHECK(transform_batch(flips, batch, some_keys(6)).equal(batch.narrow(2, 5, 10).narrow(3, 5, 10)));
  const auto all = Compose{RandomHorizontalFlip{1}, shoal::ToFloat{}, Normalize{{0.5}, {0.5}}};
  CHECK(transform_batch(all, batch, some_keys(6)).allclose(Normalize{{0.5}, {0.5}}(batch.flip(3)), 1e-5, 1e-6));
  CHECK(transform_batch(Compose{shoal::ToFloat{}}, batch, {}).equal(shoal::ToFloat{}(batch)));
}

TEST_CASE("compose: two equal steps do not draw alike") {
  const at::Tensor batch = any_images({200, 1, 1, 4});
  const at::Tensor twice =
      transform_batch(Compose{RandomHorizontalFlip{}, RandomHorizontalFlip{}}, batch, some_keys(200));
  int changed = 0;
  for (std::int64_t i = 0; i < 200; ++i) changed += twice[i].equal(batch[i]) ? 0 : 1;
  CHECK(std::abs(changed - 100) < 40);
}

TEST_CASE("transforms: what a sample becomes depends on seed, epoch and index, not on its batch or thread") {
  const at::Tensor batch = any_images({8, 3, 32, 32});
  const at::Tensor out = transform_batch(standard(), batch, some_keys(8));
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(transform_image(standard(), batch[std::int64_t(i)], {1, 0, i}).equal(out[std::int64_t(i)]));
  }
  at::Tensor elsewhere;
  std::thread([&] { elsewhere = transform_batch(standard(), batch, some_keys(8)); }).join();
  CHECK(elsewhere.equal(out));
  CHECK_FALSE(transform_batch(standard(), batch, some_keys(8, 1)).equal(out));
}

TEST_CASE("transforms: nothing is allocated once a thread has seen a picture of the size") {
  const auto all = Compose{shoal::RandomResizedCrop{.size = {24}}, standard()};
  const at::Tensor batch = any_images({4, 3, 40, 40});
  at::Tensor out = at::empty({4, 3, 24, 24}, at::TensorOptions(at::kByte));
  at::Tensor floats = at::empty({4, 3, 24, 24}, at::TensorOptions(at::kFloat));
  const Normalize normalize{{0.5}, {0.5}};
  std::vector<SampleKey> samples = some_keys(4);
  // Parts differ in size; the largest needs most.
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    for (SampleKey& sample : samples) sample.epoch = epoch;
    shoal::transform_batch_into(all, batch, samples, out);
  }
  const std::int64_t before = allocations;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    for (SampleKey& sample : samples) sample.epoch = epoch;
    shoal::transform_batch_into(all, batch, samples, out);
    normalize.into(out, floats);
  }
  CHECK(allocations == before);
  CHECK(at::empty({1}).defined());
  CHECK(allocations > before);  // it does count
}

TEST_CASE("transforms: what they can't take is named") {
  const at::Tensor batch = any_images({2, 3, 8, 8});
  CHECK_THROWS_WITH(transform_batch(RandomHorizontalFlip{}, batch.to(at::kFloat), some_keys(2)),
                    ContainsSubstring("was given Float [2, 3, 8, 8] on cpu"));
  CHECK_THROWS_WITH(transform_batch(RandomHorizontalFlip{}, at::Tensor(), some_keys(2)),
                    ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(transform_batch(RandomHorizontalFlip{}, batch, some_keys(3)),
                    ContainsSubstring("keys of 3 samples"));
  CHECK_THROWS_WITH(transform_batch(RandomHorizontalFlip{}, batch[0], some_keys(3)), ContainsSubstring("[3, 8, 8]"));
}

TEST_CASE("transforms: cross to another process as they are") {
  const auto sent = Compose{standard(), Normalize{{0.1, 0.2, 0.3}, {0.4}}};
  shoal::Encoder encoder;
  shoal::encode(encoder, sent);
  shoal::Decoder decoder(encoder.bytes(), {});
  const auto received = shoal::decode<std::remove_const_t<decltype(sent)>>(decoder);
  const at::Tensor batch = any_images({3, 3, 32, 32});
  CHECK(transform_batch(received, batch, some_keys(3)).equal(transform_batch(sent, batch, some_keys(3))));
}

TEST_CASE("pixel loops: pixels become planes at every width, and nothing beside them is written") {
  constexpr std::uint8_t kUntouched = 0xa5;
  for (const shoal::PixelLoops* loops : {&shoal::PixelLoops::plain(), &shoal::PixelLoops::best()})
    for (std::size_t n = 0; n <= 200; ++n) {
      const at::Tensor pixels = any_images({std::int64_t(n), 3});
      const auto* in = pixels.const_data_ptr<std::uint8_t>();
      std::vector<std::uint8_t> planes(3 * (n + 1), kUntouched), expected = planes;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t channel = 0; channel < 3; ++channel) expected[channel * (n + 1) + i] = in[3 * i + channel];
      loops->split(in, planes.data(), planes.data() + n + 1, planes.data() + 2 * (n + 1), n);
      CAPTURE(n);
      CHECK(planes == expected);
    }
}

TEST_CASE(
    "pixel loops: numbers of pixels, in planes or side by side, mirrored or not, at every width, and nothing beside "
    "them") {
  const shoal::ColorLines lines{{0.01F, 0.02F, 0.03F}, {-1, 0.5F, 2}};
  constexpr float kUntouched = -1234;
  for (const shoal::PixelLoops* loops : {&shoal::PixelLoops::plain(), &shoal::PixelLoops::best()})
    for (std::size_t n = 0; n <= 150; ++n) {
      const at::Tensor pixels = any_images({std::int64_t(n), 3});
      const auto* in = pixels.const_data_ptr<std::uint8_t>();
      const auto line = [&](std::size_t i, std::size_t c) {
        return float(in[3 * i + c]) * lines.scale[c] + lines.shift[c];
      };
      CAPTURE(n);
      for (const bool mirrored : {false, true}) {
        std::vector<float> planes(3 * (n + 1), kUntouched), expected = planes;
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t c = 0; c < 3; ++c) expected[c * (n + 1) + (mirrored ? n - 1 - i : i)] = line(i, c);
        float* const at[] = {planes.data(), planes.data() + n + 1, planes.data() + 2 * (n + 1)};
        loops->float_planes(in, at, n, lines, mirrored);
        CHECK(planes == expected);
        std::vector<std::uint16_t> half(3 * (n + 1), 7), halves = half, bfloat16(3 * (n + 1), 7), bfloat16s = bfloat16;
        std::uint16_t* const half_at[] = {half.data(), half.data() + n + 1, half.data() + 2 * (n + 1)};
        std::uint16_t* const bfloat16_at[] = {bfloat16.data(), bfloat16.data() + n + 1, bfloat16.data() + 2 * (n + 1)};
        loops->half_planes(in, half_at, n, lines, mirrored);
        loops->bfloat16_planes(in, bfloat16_at, n, lines, mirrored);
        for (std::size_t c = 0; c < 3; ++c)
          for (std::size_t i = 0; i < n; ++i) {
            halves[c * (n + 1) + i] = c10::Half(expected[c * (n + 1) + i]).x;
            bfloat16s[c * (n + 1) + i] = c10::BFloat16(expected[c * (n + 1) + i]).x;
          }
        CHECK(half == halves);
        CHECK(bfloat16 == bfloat16s);
      }
      std::vector<float> side_by_side(3 * n + 1, kUntouched), expected = side_by_side;
      std::vector<std::uint16_t> half(3 * n + 1, 7), halves = half, bfloat16 = half, bfloat16s = half;
      for (std::size_t i = 0; i < 3 * n; ++i) {
        expected[i] = line(i / 3, i % 3);
        halves[i] = c10::Half(expected[i]).x;
        bfloat16s[i] = c10::BFloat16(expected[i]).x;
      }
      loops->float_pixels(in, side_by_side.data(), n, lines);
      loops->half_pixels(in, half.data(), n, lines);
      loops->bfloat16_pixels(in, bfloat16.data(), n, lines);
      CHECK(side_by_side == expected);
      CHECK(half == halves);
      CHECK(bfloat16 == bfloat16s);
      std::vector<std::uint8_t> merged(3 * n + 1, 7), mixed(3 * n + 1, 7), mixes = mixed, colors(3 * n);
      loops->split(in, colors.data(), colors.data() + n, colors.data() + 2 * n, n);
      loops->merge(colors.data(), colors.data() + n, colors.data() + 2 * n, merged.data(), n);
      CHECK(std::equal(in, in + 3 * n, merged.begin()));
      CHECK(merged.back() == 7);
      std::vector<std::uint8_t> mirrored(3 * n + 2, 7), mirror = mirrored;
      for (std::size_t i = 0; i < 3 * n; ++i) mirror[1 + i] = in[3 * (n - 1 - i / 3) + i % 3];
      loops->mirror(in, mirrored.data() + 1, n);
      CHECK(mirrored == mirror);
      loops->mix(in, colors.data(), mixed.data(), 3 * n, 0.3F);
      for (std::size_t i = 0; i < 3 * n; ++i)
        mixes[i] = std::uint8_t(float(in[i]) * 0.3F + float(colors[i]) * (1 - 0.3F));
      CHECK(mixed == mixes);
    }
}

TEST_CASE("vertical flip: turns rows round with p = 1, copies with p = 0") {
  const at::Tensor image = any_images({3, 5, 7});
  CHECK(transform_image(shoal::RandomVerticalFlip{1}, image, {}).equal(image.flip({1})));
  CHECK(transform_image(shoal::RandomVerticalFlip{0}, image, {}).equal(image));
}

TEST_CASE(
    "translate: the picture is moved by every number of pixels up to padding, and its colour stands where it was") {
  const at::Tensor image = any_images({3, 6, 5});
  at::Tensor padded = at::empty({3, 10, 9}, at::kByte);
  for (std::int64_t c = 0; c < 3; ++c) padded[c].fill_(10 * (c + 1));
  padded.narrow(1, 2, 6).narrow(2, 2, 5).copy_(image);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const SampleKey& key : some_keys(400)) {
    const at::Tensor moved = transform_image(shoal::RandomTranslate{.padding = 2, .fill = {10, 20, 30}}, image, key);
    const auto found = places(padded, moved);
    REQUIRE(!found.empty());
    if (found.size() == 1) seen.insert(found[0]);
  }
  CHECK(seen.size() == 25);
}

TEST_CASE("pixel loops: the version for this CPU computes what the plain one does, to the last bit") {
  const shoal::PixelLoops& plain = shoal::PixelLoops::plain();
  const shoal::PixelLoops& best = shoal::PixelLoops::best();
  for (const std::size_t n : {1UL, 7UL, 31UL, 64UL, 1001UL}) {
    const at::Tensor bytes = any_images({4, std::int64_t(n)});
    const auto* in = bytes.const_data_ptr<std::uint8_t>();
    const std::vector<const std::uint8_t*> rows = {in, in + n, in + 2 * n};
    auto run = [&](const shoal::PixelLoops& loops) {
      std::vector<float> b(n), c(n);
      std::vector<std::uint8_t> d(n), f(in, in + n), g(in, in + n);
      loops.reverse(in, d.data(), n);
      loops.to_float(in, b.data(), n, 0.0171F, -2.1F);
      loops.grey(rows[0], rows[1], rows[2], c.data(), n);
      loops.blend(f.data(), n, 1.37F, -20.5F);
      loops.blend_with(g.data(), c.data(), n, 1.37F);
      return std::tuple(b, c, d, f, g);
    };
    CHECK(run(plain) == run(best));
  }
}

TEST_CASE("random resized crop: where no part has the asked ratio, what is taken still has a pixel") {
  for (std::uint64_t i = 0; i < 100; ++i) {
    shoal::SampleRandom random({1, 1, i});
    const auto narrow = shoal::random_part({.size = {8}, .ratio = {3, 4}}, {10, 1}, random);
    CHECK((narrow.height >= 1 && narrow.width == 1));
    const auto flat = shoal::random_part({.size = {8}, .ratio = {0.2, 0.3}}, {1, 10}, random);
    CHECK((flat.width >= 1 && flat.height == 1));
  }
}
