// Transforms against torchvision itself: what its functions made of the same pictures, written down by vectors/make.py; and
// FFCV's colours.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/workers/transforms/transforms.h>

#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/source_tree.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using shoal::detail::shape_of_image;

namespace {

const nlohmann::json& vectors() {
  static const nlohmann::json parsed = [] {
    const auto text = test::gunzipped(test::in_sources("tests/workers/transforms/vectors/torchvision.json.gz"));
    return nlohmann::json::parse(text.begin(), text.end());
  }();
  return parsed;
}

at::Tensor tensor_of(const nlohmann::json& stored) {
  const bool is_float = stored["dtype"] == "float32";
  at::Tensor tensor = at::empty(stored["shape"].get<std::vector<std::int64_t>>(), is_float ? at::kFloat : at::kByte);
  const auto hex = stored["bytes"].get<std::string>();
  REQUIRE(hex.size() == 2 * tensor.nbytes());
  auto* bytes = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i)
    bytes[i] = std::uint8_t(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return tensor;
}

std::uint8_t* bytes_of(at::Tensor& image) { return image.mutable_data_ptr<std::uint8_t>(); }

using Arguments = nlohmann::json;
using Make = std::function<at::Tensor(at::Tensor image, const Arguments& arguments)>;

/// Of a function that works in place.
template <class Change>
Make in_place(Change change) {
  return [change](at::Tensor image, const Arguments& arguments) {
    TransformScratch scratch;
    change(image, arguments, scratch);
    return image;
  };
}

/// Of a transform that has nothing to draw.
template <class Transform>
Make by(Transform transform_of) {
  return [transform_of](const at::Tensor& image, const Arguments& arguments) {
    return transform_image(transform_of(arguments), image, {});
  };
}

/// `most`: how far values may be apart. But for `beyond` of a thousand, which may be anything: where a place between two
/// pixels is rounded, torchvision's float32 may take the other one.
struct Call {
  Make make;
  double most = 0;
  double beyond = 0;
};
constexpr double kTies = 20;

PaddingMode mode_of(const std::string& name) {
  return name == "constant"  ? PaddingMode::constant
         : name == "edge"    ? PaddingMode::edge
         : name == "reflect" ? PaddingMode::reflect
                             : PaddingMode::symmetric;
}

const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> all = {
      {"horizontal_flip", {by([](auto&) { return RandomHorizontalFlip{1}; })}},
      {"vertical_flip", {by([](auto&) { return RandomVerticalFlip{1}; })}},
      {"pad",  // the only part of the padded picture that is as large
       {by([](auto& a) {
         return RandomCrop{.size = {13 + 2 + 4, 17 + 3 + 5},
                           .padding = {a[0], a[1], a[2], a[3]},
                           .fill = 9,
                           .padding_mode = mode_of(a[4])};
       })}},
      {"center_crop", {by([](auto& a) { return CenterCrop{{a[0], a[1]}}; })}},
      {"resize", {by([](auto& a) { return Resize{.size = {a[0], a[1]}, .antialias = a[2]}; }), 1}},
      {"resized_crop",
       {[](const at::Tensor& image, const Arguments& a) {
          at::Tensor out = at::empty({3, a[4].get<std::int64_t>(), a[5].get<std::int64_t>()}, at::kByte);
          TransformScratch scratch;
          resize_part(image.const_data_ptr<std::uint8_t>(), shape_of_image(image), {a[0], a[1], a[2], a[3]},
                      bytes_of(out), {a[4], a[5]}, a[6], scratch);
          return out;
        },
        1}},
      {"rotate",
       {by([](auto& a) { return RandomRotation{.degrees = {a[0], a[0]}, .bilinear = a[1], .fill = a[2]}; }), 1, kTies}},
      {"affine",
       {[](const at::Tensor& image, const Arguments& a) {
          at::Tensor out = at::empty_like(image);
          affine(image.const_data_ptr<std::uint8_t>(), shape_of_image(image), bytes_of(out),
                 {.angle = a[0], .translate = {a[1], a[2]}, .scale = a[3], .shear = {a[4], a[5]}}, a[7], a[6]);
          return out;
        },
        1, kTies}},
      {"adjust_brightness",
       {in_place([](auto& image, auto& a, auto&) { adjust_brightness(bytes_of(image), shape_of_image(image), a[0]); }),
        1}},
      {"adjust_contrast",
       {in_place(
            [](auto& image, auto& a, auto& s) { adjust_contrast(bytes_of(image), shape_of_image(image), a[0], s); }),
        1}},
      {"adjust_saturation",
       {in_place(
            [](auto& image, auto& a, auto& s) { adjust_saturation(bytes_of(image), shape_of_image(image), a[0], s); }),
        1}},
      {"adjust_sharpness", {in_place([](auto& image, auto& a, auto& s) {
         adjust_sharpness(bytes_of(image), shape_of_image(image), a[0], s);
       })}},
      {"adjust_hue",
       {in_place([](auto& image, auto& a, auto&) { adjust_hue(bytes_of(image), shape_of_image(image), a[0]); })}},
      {"grayscale", {by([](auto&) { return RandomGrayscale{1}; })}},
      {"solarize", {by([](auto& a) { return RandomSolarize{.threshold = a[0], .p = 1}; })}},
      {"posterize",
       {in_place([](auto& image, auto& a, auto&) { posterize(bytes_of(image), shape_of_image(image), a[0]); })}},
      {"autocontrast",
       {in_place([](auto& image, auto&, auto&) { autocontrast(bytes_of(image), shape_of_image(image)); })}},
      {"equalize", {in_place([](auto& image, auto&, auto&) { equalize(bytes_of(image), shape_of_image(image)); })}},
      {"gaussian_blur",
       {by([](auto& a) { return GaussianBlur{.kernel_size = {a[0], a[1]}, .sigma = {a[2], a[2]}}; }), 1}},
      {"to_float", {[](const at::Tensor& image, auto&) { return ToFloat{}(image); }, 1e-6}},
      {"normalize",
       {[](const at::Tensor& image, auto& a) { return Normalize{{a[0], a[1], a[2]}, {a[3], a[4], a[5]}}(image); },
        2e-6}}};
  return all;
}

/// How far apart, and how many of a thousand are further apart than `most`.
struct Apart {
  double largest, beyond;
};
Apart apart(const at::Tensor& a, const at::Tensor& b, double most) {
  const at::Tensor difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  return {difference.max().item<double>(), 1000 * difference.gt(most).to(at::kDouble).mean().item<double>()};
}

void check_cases(const nlohmann::json& cases) {
  for (const auto& one : cases) {
    const auto call = one["call"].get<std::string>();
    INFO(call << " " << one["arguments"].dump());
    REQUIRE(calls().contains(call));
    const Call& its = calls().at(call);
    at::Tensor made = its.make(tensor_of(vectors()["pictures"][one["of"].get<std::string>()]), one["arguments"]);
    const at::Tensor expected = tensor_of(one);
    REQUIRE(made.sizes() == expected.sizes());
    if (one.contains("edge")) {  // see make.py; color_test.cpp has what is there
      const at::Tensor edge = tensor_of(one["edge"]);
      CHECK(edge.to(at::kDouble).mean().item<double>() < 0.35);
      made = at::where(edge.ne(0), expected, made);
    }
    const Apart found = apart(made, expected, its.most);
    CAPTURE(found.largest, found.beyond);
    CHECK(found.beyond <= its.beyond);
  }
}

}  // namespace

TEST_CASE("transforms: each has the values of torchvision's function") {
  std::set<std::string> seen;
  for (const auto& one : vectors()["cases"]) seen.insert(one["call"].get<std::string>());
  CHECK(seen.size() == calls().size());  // no function without a vector
  check_cases(vectors()["cases"]);
}

TEST_CASE("transforms: brightness, contrast and saturation have the values of FFCV's operations") {
  REQUIRE(vectors()["ffcv"].size() == 15);
  check_cases(vectors()["ffcv"]);
}

TEST_CASE("auto augment: what comes out is what one of torchvision's operations makes, and each of them comes up") {
  const at::Tensor image = tensor_of(vectors()["pictures"]["oblong"]);
  const auto all_of = [&](const std::string& name, const auto& transform) {
    INFO(name);
    std::vector<at::Tensor> outcomes;
    for (const auto& outcome : vectors()["augmented"][name]) outcomes.push_back(tensor_of(outcome));
    std::set<std::size_t> seen;
    for (std::uint64_t i = 0; i < 600; ++i) {
      const at::Tensor made = transform_image(transform, image, {5, 1, i});
      std::size_t fitting = 0;
      for (std::size_t o = 0; o < outcomes.size(); ++o)
        if (apart(made, outcomes[o], 1).beyond <= kTies) ++fitting, seen.insert(o);
      CAPTURE(i);
      CHECK(fitting > 0);
    }
    for (std::size_t o = 0; o < outcomes.size(); ++o) {
      CAPTURE(vectors()["augmented"][name][o]["name"].get<std::string>());
      CHECK(seen.contains(o));
    }
  };
  all_of("RandAugment 9 of 31", RandAugment{.num_ops = 1});
  all_of("RandAugment 30 of 31", RandAugment{.num_ops = 1, .magnitude = 30});
  all_of("TrivialAugment of 2", TrivialAugment{.num_magnitude_bins = 2});
}

TEST_CASE("resize: sizes by the shorter side are torchvision's") {
  REQUIRE(vectors()["sizes"].size() == 24);
  for (const auto& one : vectors()["sizes"]) {
    INFO(one.dump());
    const ImageShape after = Resize{.size = {one[2]}, .max_size = one[3]}.output({3, one[0], one[1]});
    CHECK((after.height == one[4] && after.width == one[5]));
  }
}

TEST_CASE("random resized crop: where no part fits, the middle is torchvision's") {
  REQUIRE(vectors()["middles"].size() == 4);
  for (const auto& one : vectors()["middles"]) {
    INFO(one.dump());
    SampleRandom random({1, 1, 1});
    const ImagePart part = random_part({.size = {8}, .scale = {1, 1}}, {one[0], one[1]}, random);
    CHECK((part.top == one[2] && part.left == one[3] && part.height == one[4] && part.width == one[5]));
  }
}
