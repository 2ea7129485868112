// Pipelines in a BetonLoader: the same batches with any number of workers, and what happens in the loop's process.
#include <ATen/ATen.h>
#include <shoal/workers/beton/beton_loader.h>

#include <chrono>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/beton/pipeline_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// How often the last counting_device() has been asked, in this process.
int asked = 0;

ToDevice counting_device() {
  asked = 0;
  return {[] {
    ++asked;
    return at::Device(at::kCPU, at::DeviceIndex(asked == 1 ? -1 : 0));  // both are the CPU
  }};
}

}  // namespace

TEST_CASE("beton loader: pipelines give the same batches with 0, 1 and 7 workers, and others in each epoch") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {.count = 40}, BetonWriteMode::jpg);
  const BetonPipelines pipelines = {
      {"image",
       {RandomResizedCropRGBImageDecoder{{16}}, RandomHorizontalFlip{}, RandomTranslate{2}, Cutout{.length = 4},
        ImageMixup{}, kNormalize, ToTorchImage{}}},
      {"label", {IntDecoder{}, LabelMixup{}}},
      {"text", {BytesDecoder{}}}};
  std::vector<BetonSample> first;
  for (const int workers : {0, 1, 7}) {
    BetonLoader loader(path, {.batch_size = 8,
                              .num_workers = workers,
                              .order = BetonOrder::quasi_random,
                              .seed = 6,
                              .pipelines = pipelines});
    std::size_t at = 0;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : loader) {
        CHECK(batch.at("image").is_contiguous(at::MemoryFormat::ChannelsLast));
        if (workers == 0)
          first.push_back(batch);
        else
          for (const auto& [name, values] : first.at(at)) CHECK(batch.at(name).equal(values));
        ++at;
      }
    CHECK(at == 10);
  }
  CHECK(!first[0].at("image").equal(first[5].at("image")));
}

TEST_CASE("beton loader: what follows ToDevice and ModuleWrapper happens in the loop's process, once its loop begins") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const ToDevice here = counting_device();
  std::int64_t seen = 0;
  const ModuleWrapper doubled{[&seen](const at::Tensor& labels) {
    seen += labels.size(0);  // of this process: nothing of it crosses
    return labels * 2;
  }};
  BetonLoader loader(path,
                     {.batch_size = 3,
                      .num_workers = 1,
                      .pipelines = {{"image", {SimpleRGBImageDecoder{}, ToTensor{}, here, ToTorchImage{}, kNormalize}},
                                    {"label", {IntDecoder{}, Squeeze{}, here, doubled}},
                                    {"score", {}},
                                    {"text", {}}}});
  CHECK(asked == 0);
  const at::Tensor whole = batch_of(path, {}).at("image");
  std::int64_t at = 0;
  for (auto& batch : loader) {
    CHECK(batch["label"].equal(at::arange(at * 2, (at + 3) * 2, 2, at::kLong).mul(3)));
    CHECK(at::allclose(batch["image"].to(at::kDouble), normalized(whole.narrow(0, at, 3)), 1e-6, 1e-6));
    at += 3;
  }
  CHECK(asked == 2);  // by each pipeline once, whatever the batches
  CHECK(seen == 6);
  for (auto& batch : loader) CHECK(batch["label"].size(0) == 3);
  CHECK(asked == 2);
}

TEST_CASE("beton loader: where all fields go to one device, each ToDevice is asked once, before the first batch") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const ToDevice here = counting_device();
  BetonLoader loader(path, {.batch_size = 3,
                            .pipelines = {{"image", {}},
                                          {"label", {IntDecoder{}, here}},
                                          {"mask", {NDArrayDecoder{}, here, ToDevice{}}},
                                          {"score", {}},
                                          {"text", {}}}});
  CHECK(asked == 0);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : loader) {
      CHECK(batch.size() == 2);
      CHECK(asked == 2);
    }
  CHECK(asked == 2);
}

TEST_CASE("beton loader: a batch for which the loop's part of a pipeline throws has failed, and the epoch goes on") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {.count = 12}, BetonWriteMode::raw);
  int calls = 0;
  std::set<int> failing = {1};
  const ModuleWrapper module{[&](const at::Tensor& labels) {
    if (failing.contains(++calls)) throw std::runtime_error("not now");
    return labels + 100;
  }};
  const int workers = GENERATE(0, 1);
  BetonLoader loader(
      path, {.batch_size = 3,
             .num_workers = workers,
             .pipelines = {{"label", {IntDecoder{}, Squeeze{}, module}}, {"image", {}}, {"mask", {}}, {"text", {}}}});
  const auto label_of = [](BetonSample& batch) { return batch["label"][0].item<std::int64_t>(); };
  // The first one fails: the next begin() goes on behind it.
  CHECK_THROWS_WITH(loader.begin(), "not now");
  {
    auto at = loader.begin();
    CHECK(loader.state_dict().epoch == 0);
    CHECK(label_of(*at) == 109);
    failing = {3};
    CHECK_THROWS_WITH(++at, "not now");
    CHECK(at == std::default_sentinel);
    ++at;
    CHECK(label_of(*at) == 127);
    ++at;
    CHECK(at == std::default_sentinel);
  }
  // And continuing() delivers all others.
  for (const std::set<int>& those : {std::set<int>{1}, std::set<int>{2, 3}, std::set<int>{4}}) {
    calls = 0;
    failing = those;
    int failures = 0;
    std::vector<std::int64_t> labels, expected;
    for (auto& batch : loader.continuing([&](const std::exception&) { ++failures; })) labels.push_back(label_of(batch));
    for (int batch = 1; batch <= 4; ++batch)
      if (!those.contains(batch)) expected.push_back(100 + 9 * (batch - 1));
    CHECK(failures == int(those.size()));
    CHECK(labels == expected);
  }
}

TEST_CASE("beton loader: a profile's step has the loop's part of pipelines, and its batches are finished") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {.count = 12}, BetonWriteMode::raw);
  const ModuleWrapper slow{[](const at::Tensor& labels) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return labels + 100;
  }};
  BetonLoader loader(path, {.batch_size = 3, .pipelines = {{"label", {IntDecoder{}, slow}}, {"text", {}}}});
  const LoaderProfile profile =
      loader.profile(8, [](BetonSample& batch) { CHECK(batch["label"][0].item<std::int64_t>() >= 100); });
  CHECK(profile.step >= 0.005);
}

TEST_CASE("beton loader: where all pipelines have a ToDevice, loader.to_device is refused") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const BetonPipelines pipelines = {
      {"label", {IntDecoder{}, ToDevice{at::kCPU}}}, {"image", {}}, {"mask", {}}, {"score", {}}, {"text", {}}};
  CHECK_THROWS_WITH(BetonLoader(path, {.pipelines = pipelines, .loader = {.to_device = at::kCPU}}),
                    ContainsSubstring("leave loader.to_device out"));
  CHECK_THROWS_AS(
      BetonLoader(path, {.pipelines = pipelines, .loader = {.to_device = [] { return at::Device("cpu"); }}}),
      std::invalid_argument);
}

TEST_CASE("beton loader: a filter that takes nothing is refused by file and filter") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  CHECK_THROWS_WITH(BetonLoader(path, {.filter = [](const BetonFile&, std::int64_t) { return false; }}),
                    "BetonLoader: " + path + ": the filter takes none of the samples");
}

TEST_CASE("beton loader: a batch larger than an epoch is refused with drop_last, and is short without it") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  CHECK_THROWS_WITH(BetonLoader(path, {.batch_size = 7}),
                    ContainsSubstring("batch_size is 7, and an epoch has 6 samples") &&
                        ContainsSubstring("drop_last = false") && ContainsSubstring("a batch_size of at most 6"));
  CHECK_THROWS_WITH(BetonLoader(path, {.batch_size = 3, .indices = {1, 4}}), ContainsSubstring("has 2 samples"));
  CHECK(BetonLoader(path, {.batch_size = 6}).size() == 1);
  BetonLoader loader(path, {.batch_size = 7, .pipelines = {{"text", {}}}, .drop_last = false});
  std::vector<std::int64_t> sizes;
  for (auto& batch : loader) sizes.push_back(batch.at("label").size(0));
  CHECK(sizes == std::vector<std::int64_t>{6});
}

TEST_CASE("beton loader: a field that is not in the batch is named, beside those that are") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const int workers = GENERATE(0, 1);
  BetonLoader loader(path, {.batch_size = 6, .num_workers = workers, .pipelines = {{"text", {}}, {"mask", {}}}});
  for (auto& batch : loader) {
    CHECK_THROWS_WITH(batch.at("picture"), R"(no tensor is named "picture"; there are ["image", "label", "score"])");
    CHECK(batch.at("label").size(0) == 6);
  }
}

TEST_CASE("beton pipeline: outputs of one field go to a device together, with any number of workers") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const ToDevice cpu{at::Device(at::kCPU)};
  const auto view = [&] {
    return BetonPipeline{PipelineSpec{"image"}, RandomResizedCropRGBImageDecoder{{16}}, cpu, ToTorchImage{}};
  };
  std::vector<BetonSample> batches;
  for (const int workers : {0, 1, 2}) {
    BetonLoader loader(path, {.batch_size = 3,
                              .num_workers = workers,
                              .seed = 3,
                              .pipelines = {{"first", view()},
                                            {"second", view()},
                                            {"image", {}},
                                            {"mask", {}},
                                            {"score", {}},
                                            {"text", {}},
                                            {"class", {PipelineSpec{"label"}, IntDecoder{}, Squeeze{}, cpu}},
                                            {"label", {}}}});
    std::size_t at = 0;
    for (auto& batch : loader) {
      CHECK(batch.size() == 3);
      if (workers == 0) {
        batches.push_back(batch);
        continue;
      }
      for (const auto& [name, values] : batch) CHECK(values.equal(batches.at(at).at(name)));
      ++at;
    }
  }
  CHECK(batches.size() == 2);
}
