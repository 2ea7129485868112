// What a user of data sets and loaders gets wrong: the message has the value, what it is called, and what to do
// instead, at the earliest call that can know.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/mnist.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/datasets/image_folder.h>
#include <shoal/workers/datasets/ram_dataset.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::SequentialSampler;
using shoal::test::TemporaryFolder;

namespace {

/// Says what is missing in a message.
template <class Error>
void check_message(const std::function<void()>& call, const std::vector<std::string>& parts) {
  try {
    call();
  } catch (const Error& error) {
    for (const std::string& part : parts) CHECK_THAT(error.what(), ContainsSubstring(part));
    return;
  }
  FAIL("nothing was thrown that says '" << parts.front() << "'");
}

using Mistake = std::invalid_argument;

TEST_CASE("bad input: a batch of 0 samples is refused by the constructor") {
  check_message<Mistake>([] { DataLoader({.batch_size = 0}, Numbers{10}); },
                         {"DataLoader: batch_size is 0", "it has to be at least 1"});
  check_message<Mistake>([] { shoal::BatchSampler({.batch_size = 0}, SequentialSampler(10)); },
                         {"BatchSampler: batch_size is 0", "it has to be at least 1"});
}

TEST_CASE("bad input: negative workers are refused by the constructor, and so are too many") {
  check_message<Mistake>([] { DataLoader({.num_workers = -1}, Numbers{10}); },
                         {"DataLoader: num_workers is -1", "it has to be at least 0"});
  check_message<Mistake>([] { DataLoader({.num_workers = 5000}, Numbers{10}); },
                         {"DataLoader: num_workers is 5000", "at most 4096"});
}

TEST_CASE("bad input: shuffle and a sampler are refused by the constructor") {
  check_message<Mistake>([] { DataLoader({.shuffle = true}, Numbers{10}, SequentialSampler(10)); },
                         {"DataLoader: shuffle = true and a sampler", "give one of the two"});
}

TEST_CASE("bad input: an empty data set is refused by the constructor") {
  check_message<Mistake>([] { DataLoader({}, Numbers{0}); },
                         {"DataLoader: the data set has 0 samples", "it has to have one at least"});
  check_message<Mistake>([] { shoal::RandomSampler({}, 0); },
                         {"RandomSampler: a data set of 0 samples", "at least one"});
}

TEST_CASE("bad input: samples that make no batch are named with both shapes, in workers by their batch as well") {
  const std::vector<std::string> parts{"shape [1] in sample 0 of the batch", "[3] in sample 2", "collate function"};
  check_message<Mistake>([] { DataLoader({.batch_size = 4}, Faulty{8, 2, "shape"}).begin(); }, parts);
  auto with_batch = parts;
  with_batch.insert(with_batch.end(), {"batch 0", "loader worker 1"});
  check_message<shoal::LoaderWorkerRaised>(
      [] { DataLoader({.batch_size = 4, .num_workers = 1}, Faulty{8, 2, "shape"}).begin(); }, with_batch);
}

struct Gives {
  std::vector<std::int64_t> given;
  std::int64_t size() const { return std::int64_t(given.size()); }
  std::vector<std::int64_t> indices() const { return given; }
  void set_epoch(std::int64_t) {}
};

TEST_CASE("bad input: a sampler's index out of range is refused when the loop begins, not in a worker") {
  const int workers = GENERATE(0, 1);
  CAPTURE(workers);
  check_message<Mistake>([&] { DataLoader({.num_workers = workers}, Numbers{10}, Gives{{0, 3, 10}}).begin(); },
                         {"DataLoader: the sampler's index number 2 is 10", "the data set has 10 samples"});
  check_message<Mistake>([&] { DataLoader({.num_workers = workers}, Numbers{10}, Gives{{-1}}).begin(); },
                         {"the sampler's index number 0 is -1", "the data set has 10 samples"});
  check_message<Mistake>(
      [&] { DataLoader({}, Numbers{10}, shoal::BatchSampler({.batch_size = 2}, Gives{{4, 11}})).begin(); },
      {"the sampler's index number 1 is 11", "the data set has 10 samples"});
}

TEST_CASE("bad input: a file that is no picture is named with its index, wherever it is decoded") {
  const TemporaryFolder folder;
  shoal::test::write_file(folder.file("cats/1.png"), shoal::test::png_of(shoal::test::smooth_image(6, 8)));
  shoal::test::write_file(folder.file("cats/2.png"), {'t', 'e', 'x', 't'});
  const std::vector<std::string> parts{"sample 1: ", folder.file("cats/2.png"), "neither a JPEG nor a PNG"};
  check_message<shoal::DatasetError>([&] { (void)shoal::image_folder(folder.path()).get(1); }, parts);
  check_message<shoal::DatasetError>([&] { (void)shoal::ram_dataset(folder.path()).get(1); }, parts);
  CHECK(shoal::forget_ram_files(
      std::vector<std::filesystem::path>{folder.file("cats/1.png"), folder.file("cats/2.png")}));
  check_message<shoal::LoaderWorkerRaised>(
      [&] {
        DataLoader loader({.num_workers = 1}, shoal::image_folder(folder.path()));
        for (auto it = loader.begin(); it != loader.end();) ++it;
      },
      {parts[0], parts[1], parts[2], "batch 1"});
}

TEST_CASE("bad input: a folder without files, or that is not there, is named with what it should be") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  check_message<shoal::DatasetError>([&] { (void)shoal::image_folder(folder.path()); },
                                     {path + ": no folder in this folder", "has a folder for each class"});
  check_message<shoal::DatasetError>([&] { (void)shoal::image_folder(folder.file("none")); },
                                     {path + "/none: no such folder", "has a folder for each class"});
  check_message<shoal::DatasetError>([&] { (void)shoal::ram_dataset(folder.path()); },
                                     {path + ": no folder in this folder"});
  check_message<shoal::DatasetError>([&] { (void)shoal::files_below(folder.path()); },
                                     {path + ": no files in this folder"});
  std::filesystem::create_directory(folder.file("cats"));
  check_message<shoal::DatasetError>([&] { (void)shoal::image_folder(folder.path()); },
                                     {path + "/cats: no .jpg, .jpeg or .png file in this folder of a class"});
}

TEST_CASE("bad input: a data set that is asked for an index that it does not have says how many it has") {
  check_message<std::out_of_range>(
      [] { (void)shoal::MnistDataset{at::zeros({3, 28, 28}, at::kByte), at::arange(3)}.get(3); }, {"3"});
  check_message<std::out_of_range>([] { (void)shoal::tensor_dataset(at::arange(5)).get(-1); }, {"index -1", "5"});
}

}  // namespace
