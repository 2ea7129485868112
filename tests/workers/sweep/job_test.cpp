// The job of docs/configuration.md: read from the page, and run.
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <shoal/runtime/configure.h>
#include <shoal/runtime/options.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/pool_options.h>
#include <shoal/workers/transforms/transform_list.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

using namespace shoal;

namespace {

struct Job {
  SpawnOptions ranks;
  DataLoaderOptions loader;
  std::map<std::string, std::vector<AnyTransform>> fields;
};

std::string job_in_page() {
  std::ifstream stream(test::in_sources("docs/configuration.md"));
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  const std::size_t begin = page.find("```toml\n") + 8;
  REQUIRE(begin > 8);
  return page.substr(begin, page.find("```", begin) - begin);
}

std::int64_t samples_of_rank(int rank, std::string file) {
  const Job job = parse_config<Job>(file);
  auto data =
      transformed(tensor_dataset(at::randint(0, 256, {10, 1, 12, 12}, at::TensorOptions(at::kByte)), at::arange(10)),
                  TransformList{job.fields.at("image")});
  std::int64_t samples = 0;
  for (const auto& [images, labels] : DataLoader(job.loader, data)) {
    if (images.scalar_type() != at::kFloat || images.size(2) != 8) return -1;
    samples += labels.size(0);
  }
  return samples + 100 * rank;
}

}  // namespace

TEST_CASE("configure: a whole job is one file, that of the page, and runs") {
  const std::string file = job_in_page();
  const Job job = parse_config<Job>(file, "job.toml");
  CHECK(job.ranks.nprocs == 2);
  CHECK(job.ranks.grace_period == std::chrono::seconds(2));
  CHECK(job.loader.batch_size == 4);
  CHECK(job.loader.timeout == std::chrono::minutes(1));
  REQUIRE(job.fields.at("image").size() == 3);
  CHECK(std::get<RandomCrop>(job.fields.at("image")[0]).padding.left == 2);
  CHECK(std::get<Normalize>(job.fields.at("image")[2]).std == std::vector<double>{0.22});
  CHECK(spawn(job.ranks, samples_of_rank, file) == std::vector<std::int64_t>{10, 110});
  CHECK(config_text(parse_config<Job>(config_text(job))) == config_text(job));
}

TEST_CASE("configure: what the options of loaders, pools and transforms cannot be is said") {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      (void)parse_config<Job>(text, "job.toml");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no fault";
  };
  CHECK(fault("[loader]\nto_device = \"gpu\"\n") ==
        "job.toml:2:13: loader.to_device = \"gpu\": must be a device, as cpu, cuda or cuda:1, or none");
  CHECK(fault("[fields]\nimage = [{type = \"ToFloat\", dtype = \"int8\"}]\n") ==
        "job.toml:2:37: fields.image.0.dtype = \"int8\": must be one of float32, float16, bfloat16");
  CHECK_THAT(fault("[fields]\nimage = [{type = \"RandomCorp\"}]\n"), EndsWith("; did you mean 'RandomCrop'?"));
  CHECK(fault("[loader]\nworker_init_fn = 3\n") != "no fault");
  DataLoaderOptions options{.to_device = [] { return at::Device(at::kCPU); }};
  CHECK(config_text(options).find("to_device") == std::string::npos);
  CHECK_THAT(config_text(DataLoaderOptions{.to_device = at::Device("cuda:1")}),
             ContainsSubstring("to_device = \"cuda:1\""));
  CHECK(read_config<PoolOptions>({"on_worker_death=retry", "--task-timeout", "3s"}).task_timeout ==
        std::chrono::seconds(3));
}
