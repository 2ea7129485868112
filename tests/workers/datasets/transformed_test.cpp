#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/image_folder.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/transforms/transforms.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal::test;
using shoal::Compose;
using shoal::Example;
using shoal::transformed;

namespace {

auto small() { return Compose{shoal::RandomResizedCrop{.size = {8}}, shoal::RandomHorizontalFlip{}}; }

struct Pairs {  // pictures of two sizes, with a name
  at::Tensor pictures;
  std::int64_t size() const { return 6; }
  std::pair<at::Tensor, std::string> get(std::int64_t i) const {
    return {pictures.narrow(1, 0, 20 + i), std::to_string(i)};
  }
};

static_assert(shoal::BatchedDataset<shoal::TransformedDataset<shoal::ImageFolder, decltype(small())>>);
static_assert(shoal::Encodable<shoal::TransformedDataset<shoal::ImageFolder, decltype(small())>>);

}  // namespace

TEST_CASE("transformed: a batch is its samples, each as it is alone, in the epoch that the thread is in") {
  auto images = transformed(Pairs{at::randint(0, 256, {3, 30, 30}, at::TensorOptions(at::kByte))}, small());
  const std::vector<std::int64_t> indices = {4, 0, 3};
  auto batch_of = [&](std::uint64_t epoch) {
    const shoal::EpochScope scope(7, epoch);
    const auto [pictures, names] = images.get_batch(indices);
    CHECK(names == std::vector<std::string>{"4", "0", "3"});
    CHECK(pictures.sizes() == at::IntArrayRef({3, 3, 8, 8}));
    for (std::size_t i = 0; i < 3; ++i) CHECK(images.get(indices[i]).first.equal(pictures[std::int64_t(i)]));
    return pictures;
  };
  CHECK(batch_of(1).equal(batch_of(1)));
  CHECK_FALSE(batch_of(1).equal(batch_of(2)));
}

TEST_CASE("transformed: floats at the end are made of the whole batch") {
  const at::Tensor pictures = at::randint(0, 256, {5, 3, 12, 12}, at::TensorOptions(at::kByte));
  auto images = transformed(shoal::tensor_dataset(pictures, at::arange(5)),
                            Compose{shoal::CenterCrop{{8}}, shoal::Normalize{{0.5}, {0.5}}});
  const std::vector<std::int64_t> indices = {3, 1};
  const auto [batch, labels] = images.get_batch(indices);
  CHECK(batch.scalar_type() == at::kFloat);
  CHECK(batch[1].allclose(images.get(1)[0]));
  CHECK(labels[0].item<std::int64_t>() == 3);
}

TEST_CASE("transformed: a list of float steps alone takes pictures of floats, one by one and as a batch") {
  struct Floats {
    at::Tensor pictures;
    std::int64_t size() const { return pictures.size(0); }
    Example get(std::int64_t i) const { return {pictures[i], pictures[i][0]}; }
  };
  const at::Tensor pictures = at::randint(0, 256, {3, 3, 4, 4}, at::TensorOptions(at::kByte));
  const std::vector<std::int64_t> indices = {2, 0};
  const auto list = shoal::TransformList::from("Normalize(mean=0.5, std=0.5)");
  for (const at::Tensor& of_a_type : {pictures.to(at::kFloat), pictures}) {
    auto images = transformed(Floats{of_a_type}, list);
    const Example batch = images.get_batch(indices);
    CHECK(batch.data[1].allclose(images.get(0).data));
    CHECK(batch.target[0].equal(of_a_type[2][0]));
    auto with_masks = transformed_jointly(Floats{of_a_type}, list);
    CHECK(with_masks.get_batch(indices).data.equal(batch.data));
    CHECK(with_masks.get(2).target.equal(of_a_type[2][0]));
  }
}

TEST_CASE("transformed: pictures that stay unequal are an error that says which") {
  auto images =
      transformed(Pairs{at::randint(0, 256, {3, 30, 30}, at::TensorOptions(at::kByte))}, shoal::RandomHorizontalFlip{});
  const std::vector<std::int64_t> indices = {2, 5};
  CHECK_THROWS_WITH(images.get_batch(indices),
                    ContainsSubstring("sample 2 is [3, 22, 30]") && ContainsSubstring("sample 5 [3, 25, 30]"));
  CHECK_THROWS_AS(images.get_batch({}), std::invalid_argument);
}

TEST_CASE("transformed: an image folder through a loader, the same with workers and without") {
  const TemporaryFolder folder;
  for (int i = 0; i < 9; ++i) {
    write_file(folder.file("a/" + std::to_string(i) + ".jpg"), jpeg_of(smooth_image(30 + i, 40, i)));
  }
  auto read = [&](int workers) {
    std::vector<at::Tensor> batches;
    shoal::DataLoader loader({.batch_size = 4, .num_workers = workers},
                             transformed(shoal::image_folder(folder.path()), small()));
    for (const Example& batch : loader) batches.push_back(batch.data.clone());
    return batches;
  };
  const auto without = read(0), with = read(2);
  REQUIRE(without.size() == 3);
  REQUIRE(with.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(with[i].equal(without[i]));
}
