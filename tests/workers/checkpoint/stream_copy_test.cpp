// Copies around the cache: every byte arrives, none beside them changes, from any place to any place.
#include <shoal/internal/workers/checkpoint/write/stream_copy.h>

#include <shoal/tensors/codec.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::test;

TEST_CASE("stream_copy: all bytes arrive from any place at any place, and none beside them") {
  constexpr std::size_t kRoom = 1024;
  constexpr std::byte kUntouched{0xEE};
  std::vector<std::byte> from(kRoom), to(kRoom);
  std::mt19937 random(1);
  for (std::byte& each : from) each = std::byte(random() % 0xEE);
  for (std::size_t source = 0; source < 66; source += 1 + random() % 3)
    for (std::size_t target = 0; target < 66; ++target)
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, int(random() % 800)}) {
        std::ranges::fill(to, kUntouched);
        shoal::detail::stream_copy(to.data() + target, from.data() + source, bytes);
        const auto end = to.begin() + std::ptrdiff_t(target + bytes);
        const bool arrived =
            std::equal(to.begin() + std::ptrdiff_t(target), end, from.begin() + std::ptrdiff_t(source));
        const bool others_stay = std::all_of(to.begin(), to.begin() + std::ptrdiff_t(target),
                                             [](std::byte each) { return each == kUntouched; }) &&
                                 std::all_of(end, to.end(), [](std::byte each) { return each == kUntouched; });
        if (!arrived || !others_stay) FAIL("from " << source << " to " << target << ", " << bytes << " bytes");
      }
}

TEST_CASE("checkpoint: a shard that is larger than the cache comes back, by one thread and by several") {
  const int threads = at::get_num_threads();
  for (const int some : {1, 3}) {
    at::set_num_threads(some);
    const TemporaryFolder folder;
    // 35 MB: pieces of many lengths, one that threads share, one that is no piece of memory, and a value's block.
    const std::vector<std::int64_t> sizes{1, 63, 1'000'003, 0, 5, 4'500'001, 77};
    std::vector<at::Tensor> tensors, saved;
    for (const std::int64_t size : sizes) tensors.push_back(torch::randn({size}));
    tensors.push_back(torch::randn({999, 1001}).t());
    tensors.push_back(torch::randint(0, 250, {7'000'001}, at::kByte));
    std::vector<at::Tensor> in_value{torch::randn({501, 777}), torch::ones({3})};
    CheckpointParts parts;
    for (std::size_t i = 0; i < tensors.size(); ++i) parts.add("tensor" + std::to_string(i), tensors[i]);
    parts.add("value", in_value);
    for (const at::Tensor& tensor : tensors) saved.push_back(tensor.clone());
    Checkpoints checkpoints({.folder = folder.path(), .keep = 2});
    checkpoints.save(1, parts);
    const at::Tensor value_saved = in_value[0];
    for (at::Tensor& tensor : tensors) tensor.zero_();
    in_value = {torch::zeros({501, 777})};
    // Another state in the same buffer, so that what a copy leaves out is the other's.
    checkpoints.save(2, parts);
    checkpoints.load_step(1, parts);
    for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(torch::equal(tensors[i], saved[i]));
    CHECK((in_value.size() == 2 && torch::equal(in_value[0], value_saved)));
    checkpoints.load_step(2, parts);
    for (const at::Tensor& tensor : tensors) CHECK_FALSE(tensor.any().item<bool>());
    at::set_num_threads(threads);
  }
}
