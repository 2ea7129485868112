// How fast are pictures decoded, cropped, flipped and made floats, on one core? Beside PIL and torch on the same files.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <shoal/internal/workers/datasets/parts/ram_files.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/transforms/transforms.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/pictures/pictures.h"
#include "bench/report/report.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 7;
constexpr std::int64_t kBatch = 32;

/// Pictures a second, of each round.
template <class Round>
std::vector<double> rates(std::size_t pictures, Round&& round) {
  std::vector<double> result;
  for (int i = 0; i <= kRounds; ++i) {
    const double took = shoal::bench::seconds(round);
    if (i > 0) result.push_back(double(pictures) / took);  // the first one warms up
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::set_num_threads(1);
  shoal::bench::Report report("images");
  const shoal::test::TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  const auto small = shoal::bench::make_pictures(folder / "small", 48, 500, 375);
  const auto large = shoal::bench::make_pictures(folder / "large", 12, 1600, 1200);

  auto decode = [&](const std::string& case_name, const std::vector<fs::path>& paths, shoal::DecodeOptions options) {
    report.add("shoal", case_name, "1/s", rates(paths.size(), [&] {
                 for (const fs::path& path : paths) shoal::read_image(path, options);
               }));
  };
  decode("decode JPEG 500 x 375", small, {});
  decode("decode JPEG 1600 x 1200", large, {});
  decode("decode JPEG 1600 x 1200, at least 224 x 224", large, {{224, 224}});

  const at::Tensor picture = shoal::read_image(small[0]);
  const auto crop = shoal::Compose{shoal::RandomResizedCrop{.size = {224}}, shoal::RandomHorizontalFlip{}};
  at::Tensor out = at::empty({3, 224, 224}, at::TensorOptions(at::kByte));
  std::uint64_t epoch = 0;
  report.add("shoal", "random resized crop to 224 and flip", "1/s", rates(100, [&] {
               ++epoch;
               for (std::uint64_t i = 0; i < 100; ++i) {
                 shoal::transform_into(crop, picture, {1, epoch, i}, out.mutable_data_ptr<std::uint8_t>());
               }
             }));

  const at::Tensor batch = at::randint(0, 256, {kBatch, 3, 224, 224}, at::TensorOptions(at::kByte));
  at::Tensor flipped = at::empty(batch.sizes(), at::TensorOptions(at::kByte));
  at::Tensor floats = at::empty(batch.sizes(), at::TensorOptions(at::kFloat));
  const shoal::Normalize normalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  std::vector<shoal::SampleKey> keys(std::size_t(kBatch), shoal::SampleKey{});
  auto flip = [&] {
    ++epoch;
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = {1, epoch, i};
    shoal::transform_batch_into(shoal::RandomHorizontalFlip{}, batch, keys, flipped);
  };
  report.add("shoal", "flip a batch 3 x 224 x 224", "1/s", rates(10 * kBatch, [&] {
               for (int i = 0; i < 10; ++i) flip();
             }));
  report.add("shoal", "flip and normalize a batch 3 x 224 x 224", "1/s", rates(10 * kBatch, [&] {
               for (int i = 0; i < 10; ++i) {
                 flip();
                 normalize.into(flipped, floats);
               }
             }));

  report.run_peer("workers/images", {folder.native()});
  report.ask("decode JPEG 500 x 375", "median", "PIL", 1);
  report.ask("decode JPEG 1600 x 1200, at least 224 x 224", "median", "PIL", 1);
  report.ask("random resized crop to 224 and flip", "median", "PIL", 1);
  report.ask("flip and normalize a batch 3 x 224 x 224", "median", "torch", 1);
}
