// Transforms that are put together at run time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <shoal/ipc/codec.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/pool.h>
#include <shoal/workers/transforms/transforms.h>

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

constexpr const char* kText =
    "RandomResizedCrop(size=[24, 20], scale=[0.5, 1]), RandomHorizontalFlip(p=0.25)\n"
    "ColorJitter(brightness=0.4, contrast=[0.5, 1.5]), RandomCrop(size=16, padding=(1, 2), padding_mode=reflect,\n"
    "  mask_fill=255), Cutout(length=4), Normalize(mean=[0.485, 0.456, 0.406], std=0.25, dtype=float16)";

auto written_out() {
  return Compose{RandomResizedCrop{.size = {24, 20}, .scale = {0.5, 1}},
                 RandomHorizontalFlip{.p = 0.25},
                 ColorJitter{.brightness = {0.4}, .contrast = {.range = {{0.5, 1.5}}}},
                 RandomCrop{.size = {16}, .padding = {1, 2}, .padding_mode = PaddingMode::reflect, .mask_fill = 255},
                 Cutout{.length = 4},
                 Normalize{{0.485, 0.456, 0.406}, {0.25}, at::kHalf}};
}

at::Tensor random_images(at::IntArrayRef sizes) { return at::randint(0, 256, sizes, at::TensorOptions(at::kByte)); }

std::vector<SampleKey> keys(std::size_t count) {
  std::vector<SampleKey> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back({1, 5, i});
  return keys;
}

static_assert(Encodable<TransformList> && Encodable<TransformDescription>);
static_assert(ImageTransform<TransformList>);

}  // namespace

TEST_CASE("transform list: does what the Compose of the same steps does, draw for draw, to pictures and masks") {
  const TransformList list = TransformList::from(kText);
  const at::Tensor batch = random_images({12, 3, 40, 50});
  const at::Tensor ours = transform_batch(list, batch, keys(12));
  CHECK(ours.scalar_type() == at::kHalf);
  CHECK(ours.equal(transform_batch(written_out(), batch, keys(12))));
  const at::Tensor mask = random_images({40, 50});
  for (const SampleKey& key : keys(12))
    CHECK(transform_mask(list, mask, key).equal(transform_mask(written_out(), mask, key)));
}

TEST_CASE("transform list: its description makes it again, also as text, and shows every parameter") {
  const TransformDescription description = TransformList::from(kText).description();
  REQUIRE(description.size() == 6);
  CHECK(description[0].parameters.at("antialias") == "true");
  CHECK(description[3].parameters.at("padding") == "[1, 2]");
  CHECK((description[5] ==
         TransformStep{"Normalize", {{"mean", "[0.485, 0.456, 0.406]"}, {"std", "0.25"}, {"dtype", "float16"}}}));
  CHECK((parse_transforms(to_string(description)) == description));
  CHECK((TransformList::from(description).description() == description));
  CHECK(to_string({{"Resize", {{"size", "32"}, {"max_size", "40"}}}, {"ToFloat"}}) ==
        "Resize(max_size=40, size=32), ToFloat()");
  // Every transform there is, as it is by itself.
  const std::string all =
      "RandomHorizontalFlip(), RandomCrop(size=[8, 9], padding=[1, 2, 3, 4], mask_fill=-1), RandomResizedCrop(size=8),"
      "Resize(size=4), CenterCrop(size=3), Cutout(), ColorJitter(hue=[-0.1, 0.2]), RandomVerticalFlip(p=1),"
      "RandomTranslate(padding=2, fill=[1, 2, 3]), RandomRotation(degrees=[-9, 9]), RandomAffine(shear=[1, 2]),"
      "RandomErasing(value=9), RandomBrightness(magnitude=0.1), RandomContrast(), RandomSaturation(p=0.1), RandomHue(),"
      "RandomGrayscale(), RandomSolarize(threshold=7), GaussianBlur(kernel_size=[3, 5]), RandAugment(), "
      "TrivialAugment(),"
      "RandomApply(transforms=[Cutout(length=3)]), RandomChoice(transforms=[Cutout()], p=1), ToFloat(dtype=bfloat16),"
      "Normalize(mean=0.5, std=0.5)";
  const TransformList list = TransformList::from(all);
  CHECK(list.steps.size() == std::variant_size_v<AnyTransform>);
  CHECK((TransformList::from(list.description()).description() == list.description()));
}

TEST_CASE("transform list: a choice of crops that keep the size of their pictures is made again of its description") {
  const at::Tensor picture = random_images({3, 32, 32});
  const RandomCrop crop{.size = {32}, .padding = {4}};
  const TransformList list{{RandomApply{{crop}, 0.5}, RandomChoice{{crop, RandomHorizontalFlip{}}, {1, 2}}}};
  const TransformList again = TransformList::from(to_string(list.description()));
  CHECK((again.description() == list.description()));
  for (const SampleKey& key : keys(12))
    CHECK(transform_image(again, picture, key).equal(transform_image(list, picture, key)));
  CHECK_THROWS_WITH(TransformList::from("RandomApply(transforms=[RandomCrop(size=32, padding=4)], p=2)"),
                    ContainsSubstring("transform 1, RandomApply: RandomApply: p is 2"));
  CHECK_THROWS_WITH(TransformList::from("RandomChoice(transforms=[RandomCrop(size=32)], p=[1, 2])"),
                    ContainsSubstring("1 transforms, 2 weights"));
  CHECK_THROWS_WITH(TransformList::from("RandomChoice()"), ContainsSubstring("0 transforms"));
  CHECK_THROWS_WITH(TransformList::from("RandomApply(transforms=[RandomCrop()])"), ContainsSubstring("size is 0 x 0"));
}

TEST_CASE("transform list: a step in a Compose, a Compose of nothing, and batches alone") {
  const at::Tensor batch = random_images({5, 3, 12, 10});
  const auto nested = Compose{RandomHorizontalFlip{}, TransformList::from("RandomHorizontalFlip, CenterCrop(size=8)")};
  const auto plain = Compose{RandomHorizontalFlip{}, Compose{RandomHorizontalFlip{}, CenterCrop{{8}}}};
  CHECK(transform_batch(nested, batch, keys(5)).equal(transform_batch(plain, batch, keys(5))));
  CHECK(transform_batch(TransformList{}, batch, keys(5)).equal(batch));
  CHECK(transform_image(TransformList::from(""), batch[0], {}).equal(batch[0]));
  const TransformList normalize = TransformList::from("Normalize(mean=0.5, std=0.5)");
  const at::Tensor floats = ToFloat{}(batch);
  CHECK(transform_batch(normalize, floats, {}).equal(Normalize{{0.5}, {0.5}}(floats)));
  CHECK((TransformList::from("ToFloat").output({3, 4, 5}) == ImageShape{3, 4, 5}));
}

TEST_CASE("transform list: crosses to workers, in a data set") {
  const TransformList list = TransformList::from(kText);
  Pool pool(1);
  CHECK(to_string(pool.apply([](const TransformList& it) { return it; }, list).description()) ==
        to_string(list.description()));
  const at::Tensor pictures = random_images({6, 3, 30, 30});
  auto read = [&](int workers) {
    DataLoader loader({.batch_size = 6, .num_workers = workers, .seed = 2},
                      transformed(tensor_dataset(pictures, pictures), list));
    at::Tensor data;
    for (const auto& batch : loader) data = batch[0].clone();
    return data;
  };
  CHECK(read(1).equal(read(0)));
}

TEST_CASE("transform list: what does not fit into the memory there is, or has no pixels, is refused while it can be") {
  // As bytes from elsewhere would have it: nobody has looked at these parameters yet.
  const TransformList wide{{CenterCrop{{std::int64_t(1) << 32, std::int64_t(1) << 32}}, CenterCrop{{8}}}};
  CHECK_THROWS_AS(transform_batch(wide, random_images({1, 3, 9, 9}), keys(1)), std::invalid_argument);
  for (const char* text : {"RandomCrop(size=4, padding=4, padding_mode=symmetric)", "RandomResizedCrop(size=4)",
                           "RandomCrop(size=4, padding=4, padding_mode=edge)", "Resize(size=4)"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(transform_batch(TransformList::from(text), random_images({1, 3, 0, 5}), keys(1)),
                    std::invalid_argument);
  }
  const TransformList thin = TransformList::from("Resize(size=4, max_size=5), RandomCrop(size=4, padding=4)");
  CHECK_THROWS_WITH(transform_batch(thin, random_images({1, 3, 1, 1000}), keys(1)),
                    ContainsSubstring("one of 0 and 5"));
}

TEST_CASE("transform scratch: where there was no memory, the next one to ask gets some") {
  TransformScratch scratch;
  const TransformScratch::Frame frame(scratch);
  CHECK_THROWS_AS(scratch.take<std::uint8_t>(std::size_t(1) << 63U), std::bad_alloc);
  auto* bytes = scratch.take<std::uint8_t>(1000);
  REQUIRE(bytes != nullptr);
  bytes[999] = 7;
  CHECK(bytes[999] == 7);
}

TEST_CASE("transform list: what is wrong is named, with its step, its value and what there is instead") {
  auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    CAPTURE(text);
    try {
      (void)TransformList::from(text);
      FAIL("was not refused");
    } catch (const std::invalid_argument& error) {
      for (const std::string& part : parts) CHECK_THAT(error.what(), ContainsSubstring(part));
    }
  };
  refused("ToFloat, RandomCorp(size=3)", {"transform 2, RandomCorp", "did you mean RandomCrop?", "CenterCrop"});
  refused("Sharpen", {"transform 1, Sharpen", "there are RandomHorizontalFlip, "});
  refused("RandomCrop(szie=3)",
          {"transform 1, RandomCrop: has no parameter \"szie\"", "did you mean size?", "padding"});
  refused("RandomCrop(size=big)", {"size is \"big\"", "n or [height, width]"});
  refused("RandomCrop(size=[1, 2, 3])", {"size is \"[1, 2, 3]\""});
  refused("RandomCrop(size=3, padding=[1, 2, 3])", {"padding is", "[left, top, right, bottom]"});
  refused("RandomCrop(size=3, fill=256)", {"fill is \"256\"", "0 to 255"});
  refused("RandomCrop(size=3, padding_mode=reflct)", {"padding_mode is \"reflct\"", "constant, edge", "(reflect?)"});
  refused("RandomCrop", {"size is 0 x 0"});
  refused("Resize(size=3, antialias=yes)", {"antialias is \"yes\"", "true, false"});
  refused("RandomHorizontalFlip(p=1.5)", {"p is 1.5"});
  refused("RandomHorizontalFlip(p=0.5x)", {"p is \"0.5x\"", "a number"});
  refused("Normalize(mean=0.5)", {"1 means and 0 stds"});
  refused("Normalize(mean=[1, 2], std=[1, 2, 3])", {"2 means and 3 stds"});
  refused("Normalize(mean=0, std=0)", {"std of 0"});
  refused("ToFloat(dtype=float64)", {"dtype is \"float64\"", "float32, float16, bfloat16"});
  refused("ToFloat, CenterCrop(size=3)", {"transform 2, CenterCrop", "comes before"});
  refused("CenterCrop(size=4294967296)", {"4294967296 x 4294967296", "at most 16777216"});
  refused("RandomCrop(size=3, padding=[9223372036854775807, 0, 9223372036854775807, 0])",
          {"each is from 0 to 16777216"});
  refused("Resize(size=[4294967296, 4294967296])", {"4294967296 x 4294967296"});
  refused("RandomCrop(size 3)", {"no = behind", "\"3)\"", "character 17"});
  refused("RandomCrop(size=)", {"no value"});
  refused("RandomCrop(size=3", {"no )"});
  refused("Resize(size=3, size=4)", {"second time"});
  refused("(size=3)", {"no transform's name"});
  CHECK_THROWS_WITH((TransformList{{ToFloat{}, CenterCrop{{3}}}}.output({3, 9, 9})), ContainsSubstring("come before"));
}
