// Pipelines of .beton files whose values go to a device, on the host double and, where there is one, on a GPU.
#include <ATen/ATen.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/beton/beton_writer.h>

#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct Labels {
  struct Sample {
    std::int64_t label;
    double score;
  };
  static std::int64_t size() { return 8; }
  static Sample get(std::int64_t i) { return {i, double(i) / 2}; }
};

}  // namespace

TEMPLATE_TEST_CASE("beton loader: a field goes to a device, and back by a later ToDevice", "", OnHostDouble, OnCuda) {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const TemporaryFolder folder;
    const std::string path = folder.file("labels.beton");
    BetonWriter(path, {.page_bytes = 2U << 20U}).write(Labels{});
    const at::Device device = on<On>().device();
    int asked = 0, there = 0;
    const ToDevice to_it{[&asked, device] {
      ++asked;
      return device;
    }};
    const ModuleWrapper looked_at{[&there, device](const at::Tensor& batch) {
      there += batch.device() == device ? 1 : 0;
      return batch;
    }};
    for (const bool all : {false, true}) {
      asked = there = 0;
      BetonPipelines pipelines = {{"label", {IntDecoder{}, to_it, looked_at, ToDevice{at::kCPU}}}};
      if (all) pipelines["score"] = {FloatDecoder{}, to_it};
      BetonLoader loader(path, {.batch_size = 4, .num_workers = 1, .pipelines = pipelines});
      std::int64_t first = 0;
      for (auto& batch : loader) {
        CHECK(batch["label"].device().is_cpu());
        CHECK(batch["label"].equal(at::arange(first, first + 4, at::kLong).unsqueeze(1)));
        CHECK(batch["score"].device() == (all ? device : at::Device(at::kCPU)));
        first += 4;
      }
      CHECK(first == 8);
      CHECK(there == 2);
      CHECK(asked == (all ? 2 : 1));
    }
  }
  CHECK(nothing_left<On>());
}
