// Colours changed one at a time, blurred, erased, turned pictures, and transforms that choose among others: against
// torchvision's formulas, written as plain loops or with torch.
#include <ATen/ATen.h>
#include <shoal/workers/transforms/transforms.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;
using shoal::detail::shape_of_image;

namespace {

at::Tensor random_image(std::int64_t height = 20, std::int64_t width = 23, std::int64_t channels = 3) {
  return at::randint(0, 256, {channels, height, width}, at::kByte);
}

at::Tensor changed(const at::Tensor& image, const std::function<void(std::uint8_t*, TransformScratch&)>& change) {
  at::Tensor copy = image.clone();
  TransformScratch scratch;
  change(copy.mutable_data_ptr<std::uint8_t>(), scratch);
  return copy;
}

std::int64_t largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<std::int64_t>();
}

SampleKey key(std::uint64_t index) { return {1, 0, index}; }

/// How many of 300 samples a transform changes.
template <class T>
int changes_of(const T& transform, const at::Tensor& image) {
  int changes = 0;
  for (std::uint64_t i = 0; i < 300; ++i) changes += transform_image(transform, image, key(i)).equal(image) ? 0 : 1;
  return changes;
}

}  // namespace

TEST_CASE("colors: each changes pictures by its function and with its probability, and within its magnitude") {
  const at::Tensor image = random_image();
  const auto each = [&]<class T>(T transform, const std::function<at::Tensor(double)>& by_factor, double low,
                                 double high) {
    transform.p = 0;
    CHECK(changes_of(transform, image) == 0);
    transform.p = 0.5;
    const int changes = changes_of(transform, image);
    CHECK((changes > 100 && changes < 200));
    transform.p = 1;
    // The factor is the second draw; what it was follows from the same random numbers.
    for (std::uint64_t i = 0; i < 20; ++i) {
      SampleRandom random(key(i), inner_operation(0, 0));
      (void)random.chance(1);
      const double factor = random.uniform(low, high);
      CHECK(transform_image(Compose{transform}, image, key(i)).equal(by_factor(factor)));
    }
  };
  const ImageShape shape = shape_of_image(image);
  each(
      RandomBrightness{0.4},
      [&](double f) { return changed(image, [&](auto* p, auto&) { adjust_brightness(p, shape, f); }); }, 0.6, 1.4);
  each(
      RandomContrast{0.4},
      [&](double f) { return changed(image, [&](auto* p, auto& s) { adjust_contrast(p, shape, f, s); }); }, 0.6, 1.4);
  each(
      RandomSaturation{1.5},
      [&](double f) { return changed(image, [&](auto* p, auto& s) { adjust_saturation(p, shape, f, s); }); }, 0, 2.5);
  each(
      RandomHue{0.3}, [&](double f) { return changed(image, [&](auto* p, auto&) { adjust_hue(p, shape, f); }); }, -0.3,
      0.3);
  CHECK_THROWS_WITH(transform_image(RandomHue{0.6}, image, {}),
                    ContainsSubstring("RandomHue: magnitude is 0.6; from 0 to 0.5"));
  CHECK_THROWS_AS(transform_image(RandomContrast{-1}, image, {}), std::invalid_argument);
}

TEST_CASE("grayscale: all channels are the grey of torchvision's weights, cut; a grey picture stays") {
  const at::Tensor image = random_image();
  const at::Tensor parts = image.to(at::kFloat);
  const at::Tensor grey = (parts[0] * 0.2989 + parts[1] * 0.587 + parts[2] * 0.114).to(at::kByte);
  CHECK(transform_image(RandomGrayscale{1}, image, {}).equal(grey.expand({3, 20, 23})));
  CHECK(transform_image(RandomGrayscale{0}, image, {}).equal(image));
  const at::Tensor one = random_image(20, 23, 1);
  CHECK(transform_image(RandomGrayscale{1}, one, {}).equal(one));
}

TEST_CASE("solarize, posterize, autocontrast, equalize: torchvision's formulas") {
  const at::Tensor image = random_image(40, 50).div(3, "floor").add(40).to(at::kByte);
  const ImageShape shape = shape_of_image(image);
  CHECK(transform_image(RandomSolarize{.threshold = 60, .p = 1}, image, {})
            .equal(at::where(image.ge(60), 255 - image, image)));
  CHECK(changed(image, [&](auto* p, auto&) { posterize(p, shape, 3); }).equal(image.bitwise_and(0b11100000)));
  CHECK(changed(image, [&](auto* p, auto&) { posterize(p, shape, 8); }).equal(image));
  const at::Tensor floats = image.to(at::kFloat), low = floats.amin({1, 2}, true), high = floats.amax({1, 2}, true);
  const at::Tensor stretched = (floats - low).div((high - low).mul(1.0 / 255)).clamp(0, 255).to(at::kByte);
  CHECK(changed(image, [&](auto* p, auto&) { autocontrast(p, shape); }).equal(stretched));
  const at::Tensor flat = at::full({3, 4, 5}, 9, at::kByte);
  CHECK(changed(flat, [&](auto* p, auto&) { autocontrast(p, shape_of_image(flat)); }).equal(flat));
  CHECK(changed(flat, [&](auto* p, auto&) { equalize(p, shape_of_image(flat)); }).equal(flat));
  at::Tensor equalized = at::empty_like(image);  // torchvision's steps
  for (std::int64_t c = 0; c < 3; ++c) {
    const at::Tensor counts = at::bincount(image[c].flatten().to(at::kLong), {}, 256);
    std::int64_t last = 255;
    while (counts[last].item<std::int64_t>() == 0) --last;
    const std::int64_t step = (40 * 50 - counts[last].item<std::int64_t>()) / 255;
    REQUIRE(step > 0);
    const at::Tensor sums =
        at::cat({at::zeros({1}, at::kLong), counts.cumsum(0).add(step / 2).div(step, "floor").narrow(0, 0, 255)});
    equalized[c].copy_(sums.clamp(0, 255).to(at::kByte).index({image[c].to(at::kLong)}));
  }
  CHECK(changed(image, [&](auto* p, auto&) { equalize(p, shape); }).equal(equalized));
}

TEST_CASE("sharpness: blends with torchvision's smoothed picture inside, and leaves the edge") {
  const at::Tensor image = random_image();
  const ImageShape shape = shape_of_image(image);
  const at::Tensor kernel = at::tensor({1.0F, 1.0F, 1.0F, 1.0F, 5.0F, 1.0F, 1.0F, 1.0F, 1.0F})
                                .div(13)
                                .view({1, 1, 3, 3})
                                .expand({3, 1, 3, 3});
  const at::Tensor smooth =
      at::conv2d(image.to(at::kFloat).unsqueeze(0), kernel, {}, {1, 1}, at::IntArrayRef({0, 0}), {1, 1}, 3)[0].round();
  for (const double factor : {0.0, 0.5, 1.0, 1.9}) {
    at::Tensor expected = image.to(at::kFloat);
    at::Tensor inner = expected.narrow(1, 1, 18).narrow(2, 1, 21);
    inner.add_((smooth - inner).mul(1 - factor)).clamp_(0, 255);
    const at::Tensor sharpened = changed(image, [&](auto* p, auto& s) { adjust_sharpness(p, shape, factor, s); });
    CHECK(largest_difference(sharpened, expected.to(at::kByte)) <= 1);
    if (factor == 1) CHECK(sharpened.equal(image));
  }
  const at::Tensor thin = random_image(2, 9);
  CHECK(changed(thin, [&](auto* p, auto& s) { adjust_sharpness(p, shape_of_image(thin), 0, s); }).equal(thin));
}

TEST_CASE("blur: a convolution with torchvision's kernel over the mirrored picture, rounded") {
  const at::Tensor image = random_image(31, 37);
  for (const auto& [rows, columns] : {std::pair{3, 3}, {5, 1}, {1, 7}, {9, 11}}) {
    const GaussianBlur blur{.kernel_size = {rows, columns}, .sigma = {1.3, 1.3}};
    const auto kernel = [](std::int64_t size) {
      const at::Tensor x = at::arange(size, at::kDouble) - double(size - 1) / 2;
      const at::Tensor weights = (x / 1.3).pow(2).mul(-0.5).exp();
      return (weights / weights.sum()).to(at::kFloat);
    };
    const at::Tensor both =
        at::outer(kernel(rows), kernel(columns)).view({1, 1, rows, columns}).expand({3, 1, rows, columns});
    const at::Tensor padded =
        at::reflection_pad2d(image.to(at::kFloat), {columns / 2, columns / 2, rows / 2, rows / 2});
    const at::Tensor expected =
        at::conv2d(padded.unsqueeze(0), both, {}, {1, 1}, at::IntArrayRef({0, 0}), {1, 1}, 3)[0].round().to(at::kByte);
    CHECK(largest_difference(transform_image(blur, image, {}), expected) <= 1);
  }
  CHECK_THROWS_WITH(transform_image(GaussianBlur{.kernel_size = {4}}, image, {}), ContainsSubstring("odd numbers"));
  CHECK_THROWS_WITH(transform_image(GaussianBlur{.kernel_size = {63}}, image, {}), ContainsSubstring("too small"));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH(transform_image(GaussianBlur{.sigma = {kInfinity, kInfinity}}, image, {}),
                    ContainsSubstring("finite"));
}

TEST_CASE("erasing: one rectangle of a share of the area gets the value; with p = 0 none") {
  const at::Tensor image = at::zeros({3, 40, 50}, at::kByte);
  const RandomErasing erasing{.p = 1, .scale = {0.1, 0.2}, .ratio = {0.5, 2}, .value = {1, 2, 3}};
  std::set<std::int64_t> corners;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const at::Tensor erased = transform_image(erasing, image, key(i));
    const at::Tensor where = erased[0].eq(1);
    const at::Tensor rows = where.any(1).nonzero(), columns = where.any(0).nonzero();
    const std::int64_t area = where.sum().item<std::int64_t>();
    CHECK(area == rows.size(0) * columns.size(0));  // a rectangle
    CHECK((double(area) > 0.1 * 2000 - 50 && double(area) < 0.2 * 2000 + 50));
    for (std::int64_t c = 1; c < 3; ++c) CHECK(erased[c].equal(where.to(at::kByte) * (c + 1)));
    corners.insert(rows[0].item<std::int64_t>() * 50 + columns[0].item<std::int64_t>());
  }
  CHECK(corners.size() > 80);
  CHECK(changes_of(RandomErasing{.p = 0, .value = {9, 9, 9}}, image) == 0);
  CHECK_THROWS_AS(transform_image(RandomErasing{.scale = {0.5, 0.1}}, image, {}), std::invalid_argument);
}

TEST_CASE("affine: turns, moves and scales as torchvision's affine_grid and grid_sample do") {
  const at::Tensor image = random_image(24, 31);
  const ImageShape shape = shape_of_image(image);
  const auto by = [&](const AffineMap& map, bool bilinear, std::uint8_t fill = 0) {
    at::Tensor out = at::empty_like(image);
    affine(image.const_data_ptr<std::uint8_t>(), shape, out.mutable_data_ptr<std::uint8_t>(), map, fill, bilinear);
    return out;
  };
  CHECK(by({}, false).equal(image));
  CHECK(by({}, true).equal(image));
  const at::Tensor moved = by({.translate = {3, -2}}, false, 7);
  CHECK(moved.narrow(1, 0, 22).narrow(2, 3, 28).equal(image.narrow(1, 2, 22).narrow(2, 0, 28)));
  CHECK(moved.narrow(2, 0, 3).eq(7).all().item<bool>());
  CHECK(moved.narrow(1, 22, 2).eq(7).all().item<bool>());
  const at::Tensor square = random_image(20, 20);
  at::Tensor turned = at::empty_like(square);
  affine(square.const_data_ptr<std::uint8_t>(), {3, 20, 20}, turned.mutable_data_ptr<std::uint8_t>(), {.angle = 90}, 0,
         false);
  CHECK(turned.equal(at::rot90(square, -1, {1, 2})));                                                // clockwise
  CHECK(transform_image(RandomRotation{{90, 90}}, square, {}).equal(at::rot90(square, 1, {1, 2})));  // the other way
  for (const AffineMap& map : {AffineMap{.angle = 33, .translate = {2.5, 1}, .scale = 1.3, .shear = {11, 0}},
                               AffineMap{.angle = -12, .scale = 0.7, .shear = {-8, 15}}})
    for (const bool bilinear : {false, true}) {
      // torchvision's _get_inverse_affine_matrix and _affine_grid.
      const double pi = std::acos(-1.0), rot = map.angle * pi / 180, sx = map.shear[0] * pi / 180,
                   sy = map.shear[1] * pi / 180;
      const double a = std::cos(rot - sy) / std::cos(sy), b = -(a * std::tan(sx) + std::sin(rot));
      const double c = std::sin(rot - sy) / std::cos(sy), d = std::cos(rot) - c * std::tan(sx);
      std::array<double, 6> m = {d / map.scale, -b / map.scale, 0, -c / map.scale, a / map.scale, 0};
      m[2] -= m[0] * map.translate[0] + m[1] * map.translate[1];
      m[5] -= m[3] * map.translate[0] + m[4] * map.translate[1];
      at::Tensor grid = at::empty({1, 24, 31, 2}, at::kFloat);
      for (std::int64_t y = 0; y < 24; ++y)
        for (std::int64_t x = 0; x < 31; ++x) {
          const double right = double(x) + 0.5 - 15.5, down = double(y) + 0.5 - 12;
          grid[0][y][x][0] = (m[0] * right + m[1] * down + m[2]) / 15.5;
          grid[0][y][x][1] = (m[3] * right + m[4] * down + m[5]) / 12;
        }
      const at::Tensor expected =
          at::grid_sampler(image.to(at::kFloat).unsqueeze(0), grid, bilinear ? 0 : 1, 0, false)[0].round().to(
              at::kByte);
      const at::Tensor difference = (by(map, bilinear).to(at::kInt) - expected.to(at::kInt)).abs();
      // Of a pixel between two others floats may take the other one.
      if (bilinear) {
        CHECK(difference.max().item<int>() <= 1);
        // What is around the picture is mixed in by its share.
        const at::Tensor share = at::grid_sampler(at::ones({1, 3, 24, 31}), grid, 0, 0, false)[0];
        const at::Tensor around =
            at::grid_sampler(image.to(at::kFloat).unsqueeze(0), grid, 0, 0, false)[0] + (1 - share) * 90;
        CHECK(largest_difference(by(map, true, 90), around.round().to(at::kByte)) <= 1);
      } else
        CHECK(difference.gt(0).sum().item<int>() <= 6);
    }
  CHECK_THROWS_WITH(transform_mask(RandomAffine{}, image[0], {}), ContainsSubstring("whole rows and columns"));
  CHECK_THROWS_AS(transform_image(RandomAffine{.scale = {0, 1}}, image, {}), std::invalid_argument);
}

TEST_CASE("auto augment: every operation comes up, each sample by its own draws, and nothing at the least magnitude") {
  const at::Tensor image = random_image(32, 32);
  CHECK(transform_image(RandAugment{.num_ops = 0}, image, {}).equal(image));
  std::set<std::string> results;
  const auto bytes = [](const at::Tensor& tensor) {
    return std::string(reinterpret_cast<const char*>(tensor.const_data_ptr<std::uint8_t>()), tensor.nbytes());
  };
  for (std::uint64_t i = 0; i < 400; ++i) {
    const at::Tensor once = transform_image(RandAugment{.num_ops = 1}, image, key(i));
    CHECK(once.equal(transform_image(RandAugment{.num_ops = 1}, image, key(i))));
    results.insert(bytes(once));
  }
  // Nine operations with two signs each, and five without; one bin has no sign that shows.
  CHECK(results.size() >= 20);
  CHECK(results.size() <= 23);
  std::set<std::string> trivial;
  for (std::uint64_t i = 0; i < 400; ++i) trivial.insert(bytes(transform_image(TrivialAugment{}, image, key(i))));
  CHECK(trivial.size() > 150);
  CHECK_THROWS_AS(transform_image(RandAugment{.magnitude = 31}, image, {}), std::invalid_argument);
  CHECK_THROWS_WITH(transform_mask(TrivialAugment{}, image[0], {}), ContainsSubstring("whole rows and columns"));
}

TEST_CASE("auto augment: a shear leaves the corner where it is, as torchvision's") {
  // The top row stays with shear_x, the left column with shear_y: found among the samples by that.
  const at::Tensor image = random_image(32, 32);
  int rows = 0, columns = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const at::Tensor once = transform_image(RandAugment{.num_ops = 1, .magnitude = 30}, image, key(i));
    if (once.equal(image)) continue;
    rows += once.select(1, 0).equal(image.select(1, 0)) ? 1 : 0;
    columns += once.select(2, 0).equal(image.select(2, 0)) ? 1 : 0;
  }
  CHECK(rows > 10);
  CHECK(columns > 10);
}

TEST_CASE("random apply and choice: all or none of some transforms, one of several, and masks go the same way") {
  const at::Tensor image = random_image(24, 24);
  const RandomApply both{{RandomHorizontalFlip{1}, RandomVerticalFlip{1}}, 0.5};
  int applied = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const at::Tensor result = transform_image(both, image, key(i));
    const bool is_flipped = result.equal(image.flip({1, 2}));
    CHECK((is_flipped || result.equal(image)));
    applied += is_flipped ? 1 : 0;
    CHECK(transform_mask(both, image[0], key(i)).equal(result[0]));
  }
  CHECK((applied > 100 && applied < 200));
  const RandomChoice one{{RandomHorizontalFlip{1}, RandomVerticalFlip{1}, RandomTranslate{3}}, {1, 3, 0}};
  int horizontal = 0, vertical = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const at::Tensor result = transform_image(one, image, key(i));
    horizontal += result.equal(image.flip({2})) ? 1 : 0;
    vertical += result.equal(image.flip({1})) ? 1 : 0;
    CHECK(transform_mask(one, image[0], key(i)).equal(result[0]));
  }
  CHECK(horizontal + vertical == 400);
  CHECK((horizontal > 60 && horizontal < 140));
  CHECK_THROWS_WITH(transform_image(RandomApply{{RandomCrop{.size = {3}}}}, image, {}),
                    ContainsSubstring("keep the size"));
  CHECK_THROWS_AS(transform_image(RandomChoice{{RandomCrop{.size = {3}}, RandomHorizontalFlip{}}}, image, {}),
                  std::invalid_argument);
  CHECK_THROWS_AS(transform_image(RandomChoice{}, image, {}), std::invalid_argument);
}

TEST_CASE("poison: the pictures of some samples get the mask by alpha, within the clamp") {
  const at::Tensor image = random_image();
  const Poison poison{at::rand({3, 20, 23}).mul(255), at::rand({20, 23}), {4, 7}, {10, 200}};
  const at::Tensor expected =
      (image.to(at::kFloat) * (1 - poison.alpha) + poison.mask * poison.alpha).clamp(10, 200).to(at::kByte);
  CHECK(largest_difference(transform_image(poison, image, key(7)), expected) <= 1);
  CHECK(transform_image(poison, image, key(5)).equal(image));
  CHECK_THROWS_WITH(transform_image(poison, random_image(8, 8), key(5)),
                    ContainsSubstring("needs a mask of that shape"));
}

TEST_CASE("transform list: transforms in transforms are read from a text and written as one") {
  const std::string text =
      "RandomApply(transforms=[RandomHorizontalFlip(p=1), GaussianBlur(kernel_size=[3, 5], sigma=[0.5, 1])], p=0.3), "
      "RandomChoice(transforms=[RandomErasing(value=[1, 2, 3]), RandAugment(num_ops=1)], p=[1, 2]), "
      "RandomAffine(degrees=[-5, 5], translate=[0.1, 0.2]), TrivialAugment(), Normalize(mean=0.5, std=0.5)";
  const TransformList list = TransformList::from(text);
  REQUIRE(list.steps.size() == 5);
  CHECK(std::get<RandomApply>(list.steps[0]).transforms.size() == 2);
  CHECK(std::get<RandomChoice>(list.steps[1]).p == std::vector<double>{1, 2});
  const std::string written = to_string(list.description());
  CHECK(to_string(TransformList::from(written).description()) == written);
  const at::Tensor image = random_image(32, 32);
  const at::Tensor batch = image.unsqueeze(0);
  const SampleKey one = key(3);
  CHECK(transform_batch(list, batch, std::span(&one, 1))
            .equal(transform_batch(TransformList::from(written), batch, std::span(&one, 1))));
  CHECK_THROWS_WITH(TransformList::from("RandomApply(transforms=[RandomApply()])"), ContainsSubstring("RandomApply"));
  CHECK_THROWS_WITH(TransformList::from("RandomChoice(transforms=[Nothing()])"), ContainsSubstring("Nothing"));
}
