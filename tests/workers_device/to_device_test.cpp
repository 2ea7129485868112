// A data loader whose batches are copied to a device ahead of its loop, on the host double and, where there is one, on a GPU.
#include <ATen/ATen.h>
#include <shoal/internal/tensors/cuda/pinned_ranges.h>
#include <shoal/internal/tensors/driver/on_stream.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/tensors/cuda/devices.h"
#include "tests/workers/loader/loader_fixtures.h"
#include "tests/workers/loader/row_stream.h"

using namespace shoal::test;
using shoal::OnStream;
namespace host_double = shoal::host_double;

namespace {

/// The stream of the next loader that begins its first loop: a device has 32 of them, which are given in turn.
template <class On>
c10::Stream next_stream() {
  const c10::Stream first = new_stream<On>();
  for (int i = 1; i < 32; ++i) (void)new_stream<On>();
  return first;
}

/// Stops a loader's copies before its first loop.
template <class On>
std::shared_ptr<void> gate_of_next_loader() {
  const OnStream stream(next_stream<On>());
  return On::close_gate();
}

struct Nested {
  at::Tensor numbers;
  std::map<std::string, at::Tensor> named;
  std::optional<at::Tensor> maybe;
  std::vector<std::string> words;
  std::pair<at::Tensor, double> pair;
};

struct NestedSet {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t) const { return {}; }
  Nested get_batch(std::span<const std::int64_t> indices) const {
    const at::Tensor numbers = shoal::select_rows(at::arange(count), indices);
    return {numbers, {{"twice", numbers.mul(2)}}, numbers.add(1), {"word"}, {numbers.neg(), 0.5}};
  }
};

/// Batches of two rows are one extent of the heap: each slot is registered by itself.
struct Wide {
  static constexpr std::int64_t kWidth = 1 << 18;
  static constexpr std::size_t kBatchBytes = 2u << 20;
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return at::full({kWidth}, double(index), at::kFloat); }
};

/// Batches that libtorch does not copy to the double, and that lie nowhere as one piece.
struct Sparse {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t) const { return {}; }
  at::Tensor get_batch(std::span<const std::int64_t>) const { return at::eye(3).to_sparse(); }
};

template <class On, class Loader>
std::vector<std::int64_t> epoch_on_device(Loader& loader) {
  std::vector<std::int64_t> all;
  for (const at::Tensor& batch : loader) {
    CHECK(batch.device() == on<On>().device());
    for (const std::int64_t number : first_column(batch.cpu())) all.push_back(number);
  }
  return all;
}

}  // namespace

#define TO_DEVICE_TEST_CASE(name) TEMPLATE_TEST_CASE("to_device: " name, "", OnHostDouble, OnCuda)

TO_DEVICE_TEST_CASE(
    "batches are those of the loader without, whatever the workers, pinned or not, copied ahead or not") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const int workers : {0, 1, 2})
    for (const bool pin : {false, true})
      for (const int ahead : {0, 1, 3}) {
        DataLoader loader({.batch_size = 7,
                           .shuffle = true,
                           .num_workers = workers,
                           .seed = 3,
                           .pin_memory = pin,
                           .to_device = on<On>().device(),
                           .copies_ahead = ahead},
                          Numbers{60});
        DataLoader plain({.batch_size = 7, .shuffle = true, .seed = 3}, Numbers{60});
        CHECK(epoch_on_device<On>(loader) == flat(one_epoch(plain)));
        CHECK(epoch_on_device<On>(loader) == flat(one_epoch(plain)));
      }
  CHECK(nothing_left<On>());
}

TEST_CASE("to_device: what cannot be pinned is passed over, and copied as any other") {
  if (skipped<OnHostDouble>()) return;
  for (const int workers : {0, 1}) {
    DataLoader loader(
        {.batch_size = 2, .num_workers = workers, .pin_memory = true, .to_device = on<OnHostDouble>().device()},
        Sparse{6});
    CHECK_THROWS_WITH(loader.begin(), !ContainsSubstring("pin_memory_"));  // the double copies no sparse tensors
  }
  CHECK(nothing_left<OnHostDouble>());
}

TO_DEVICE_TEST_CASE("every tensor of a nested batch goes, what else there is stays as it was") {
  using On = TestType;
  if (skipped<On>()) return;
  const int workers = GENERATE(0, 1);
  {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .to_device = on<On>().device()}, NestedSet{8});
    std::int64_t first = 0;
    for (const Nested& batch : loader) {
      const at::Tensor expected = at::arange(first, first + 4);
      for (const auto& [tensor, value] : {std::pair(batch.numbers, expected),
                                          {batch.named.at("twice"), expected.mul(2)},
                                          {*batch.maybe, expected.add(1)},
                                          {batch.pair.first, expected.neg()}}) {
        CHECK(tensor.device() == on<On>().device());
        CHECK(tensor.cpu().equal(value));
      }
      CHECK(batch.words == std::vector<std::string>{"word"});
      CHECK(batch.pair.second == 0.5);
      first += 4;
    }
    CHECK(first == 8);
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("a slot is not made use of again while a late copy reads it") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    auto gate = gate_of_next_loader<On>();
    DataLoader loader(
        {.batch_size = 4, .num_workers = 1, .prefetch_factor = 2, .pin_memory = true, .to_device = on<On>().device()},
        Numbers{400});
    std::vector<at::Tensor> kept;
    auto it = loader.begin();
    kept.push_back(*it);
    // The worker goes on, and takes whatever memory is free.
    CHECK(eventually([&] { return loader.memory().batches_ready == 2; }));
    ++it;
    kept.push_back(*it);
    CHECK(loader.memory().copies_ahead == 1);
    CHECK(loader.memory().device_bytes == 4 * 2 * 8);
    CHECK_THAT(loader.memory().to_string(), ContainsSubstring("batches on the device,    1"));
    CHECK(eventually([&] { return loader.memory().batches_ready == 2; }));
    gate.reset();
    for (int i = 0; i < 30; ++i) kept.push_back(*++it);
    for (std::size_t i = 0; i < kept.size(); ++i)
      CHECK(kept[i].cpu().equal(at::arange(4 * std::int64_t(i), 4 * std::int64_t(i) + 4).unsqueeze(1).expand({4, 2})));
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("pinned slots are registered once, and there are no more of them than without pinning") {
  using On = TestType;
  if (skipped<On>()) return;
  // The most that are there at once, pinned or not: ready ones, one that a worker makes, copies under way, and the
  // one that was delivered.
  constexpr int kPrefetch = 2, kAhead = 1, kSlots = kPrefetch + 1 + (kAhead + 2) + 1;
  const int batches = 150 * test_scale();
  {
    DataLoader loader({.batch_size = 2,
                       .num_workers = 1,
                       .prefetch_factor = kPrefetch,
                       .pin_memory = true,
                       .to_device = on<On>().device(),
                       .copies_ahead = kAhead},
                      Wide{2 * batches});
    [[maybe_unused]] const int before = host_double::counts().registrations;
    [[maybe_unused]] const auto begun = shoal::PinnedRanges::Clock::now();
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::int64_t next = 0;
      for (const at::Tensor& batch : loader) {
        CHECK(batch.cpu()[1][Wide::kWidth - 1].item<float>() == float(next + 1));
        next += 2;
      }
      CHECK(next == 2 * batches);
      CHECK(shoal::device_ipc_statistics().pinned_bytes > 0);
      CHECK(shoal::device_ipc_statistics().pinned_bytes <= kSlots * Wide::kBatchBytes);
      if constexpr (On::kIsDouble) {
        const int registrations = host_double::counts().registrations - before;
        CHECK(registrations > 0);
        // A slot that was not needed for so long is registered anew.
        const auto rests = (shoal::PinnedRanges::Clock::now() - begun) / shoal::PinnedRanges::kRest;
        CHECK(registrations <= kSlots * (1 + rests));
      }
    }
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("a batch that is copied ahead is not seen: a state goes on with it") {
  using On = TestType;
  if (skipped<On>()) return;
  const int workers = GENERATE(1, 2);
  for (int batches = 1; batches <= 5; ++batches) {
    const shoal::DataLoaderOptions options{
        .batch_size = 4, .shuffle = true, .num_workers = workers, .to_device = on<On>().device(), .copies_ahead = 2};
    DataLoader loader(options, Numbers{20});
    std::vector<std::int64_t> seen;
    shoal::LoaderState state;
    {
      auto it = loader.begin();
      for (int i = 1;; ++i, ++it) {
        for (const std::int64_t number : first_column((*it).cpu())) seen.push_back(number);
        if (i == batches) break;
        CHECK(eventually([&] { return loader.memory().batches_ready + loader.memory().copies_ahead >= 1; }));
      }
      state = loader.state_dict();
    }
    CHECK(state.place == (batches == 5 ? 0 : 4 * batches));
    if (batches < 5) {
      DataLoader rest(options, Numbers{20});
      rest.load_state_dict(state);
      for (const std::int64_t number : epoch_on_device<On>(rest)) seen.push_back(number);
    }
    DataLoader whole({.batch_size = 4, .shuffle = true}, Numbers{20});
    CHECK(seen == flat(one_epoch(whole)));
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("an exception comes at its batch, not where the copy would have begun, and the loop goes on") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DataLoader loader({.batch_size = 2, .num_workers = 1, .to_device = on<On>().device(), .copies_ahead = 2},
                      Faulty{12, 5, "throw"});
    std::vector<std::int64_t> seen;
    auto it = loader.begin();
    const auto take = [&] {
      for (const std::int64_t number : first_column((*it).cpu())) seen.push_back(number);
    };
    take();
    // So that the failed one lies ready too, whose turn has not come.
    CHECK(eventually([&] { return loader.memory().batches_ready == 2; }));
    CHECK_NOTHROW(++it);
    take();
    CHECK_THROWS_AS(++it, shoal::LoaderWorkerRaised);
    CHECK(loader.state_dict().place == 6);
    while (++it != loader.end()) take();
    CHECK(seen == std::vector<std::int64_t>{0, 1, 2, 3, 6, 7, 8, 9, 10, 11});
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("the report says a fault when its batch comes") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DataLoader loader({.batch_size = 2,
                       .num_workers = 1,
                       .to_device = on<On>().device(),
                       .copies_ahead = 2,
                       .on_error = shoal::OnError::skip},
                      Faulty{40, 4, "throw"});
    auto it = loader.begin();
    CHECK(eventually([&] { return loader.memory().batches_ready == 2; }));
    ++it;
    CHECK(loader.memory().copies_ahead >= 1);  // the one with a sample less
    CHECK(loader.report().faults.empty());
    ++it;
    CHECK(loader.report().faults.size() == 1);
    CHECK((*it).cpu().equal(at::full({1, 1}, 5)));
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("a worker that is killed is replaced, each batch comes once and in order") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DataLoader loader(
        {.batch_size = 2, .num_workers = 2, .to_device = on<On>().device(), .copies_ahead = 2, .max_retries = 0},
        Faulty{12, 5, "kill"});
    std::vector<std::int64_t> seen;
    auto it = loader.begin();
    for (;; ++it) {
      for (const std::int64_t number : first_column((*it).cpu())) seen.push_back(number);
      if (seen.back() == 3) break;
    }
    CHECK_THROWS_AS(++it, shoal::LoaderWorkerDied);
    while (++it != loader.end())
      for (const std::int64_t number : first_column((*it).cpu())) seen.push_back(number);
    CHECK(seen == std::vector<std::int64_t>{0, 1, 2, 3, 6, 7, 8, 9, 10, 11});
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("a loop that is left waits for what is under way, and drops it") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    auto gate = gate_of_next_loader<On>();
    DataLoader loader({.batch_size = 4, .num_workers = 1, .pin_memory = true, .to_device = on<On>().device()},
                      Numbers{400});
    std::thread opens;
    const std::size_t before = On::bytes_in_storages();
    {
      auto it = loader.begin();
      CHECK(On::bytes_in_storages() > before);
      opens = std::thread([&] { gate.reset(); });
    }
    CHECK(On::bytes_in_storages() == before);
    CHECK(loader.memory().copies_ahead == 0);
    opens.join();
    CHECK(epoch_on_device<On>(loader) == counting(400));  // the next epoch is whole
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("loops left early, by break and by an exception, leave nothing on the device or in the heap") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DataLoader loader(
        {.batch_size = 4, .num_workers = 1, .pin_memory = true, .to_device = on<On>().device(), .copies_ahead = 2},
        Numbers{80});
    const auto nothing_pinned = [] {
      shoal::ipc_collect();
      return shoal::device_ipc_statistics().pinned_blocks == 0;
    };
    (void)epoch_on_device<On>(loader);
    CHECK(eventually(nothing_pinned));
    const std::size_t before = shoal::heap_bytes_in_use(), in_storages = On::bytes_in_storages();
    for (int i = 0; i < 25 * test_scale(); ++i) {
      for (const at::Tensor& batch : loader) {
        if (i % 2 == 0) break;
        CHECK(batch.defined());
      }
      try {
        for (const at::Tensor& batch : loader) throw batch.size(0);
      } catch (std::int64_t size) {
        CHECK(size == 4);
      }
      CHECK(On::bytes_in_storages() == in_storages);
    }
    // What workers had begun comes a little later, and is dropped.
    CHECK(eventually([&] { return nothing_pinned() && shoal::heap_bytes_in_use() <= before; }));
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("an iterable data set's batches are copied ahead too, to its last one") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const int workers : {0, 1, 2}) {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .pin_memory = true, .to_device = on<On>().device()},
                      RowStream{22});
    CHECK(epoch_on_device<On>(loader) == counting(22));
    CHECK(epoch_on_device<On>(loader) == counting(22));
  }
  CHECK(nothing_left<On>());
}

template <class Loader>
std::vector<std::int64_t> numbers_of(Loader& loader) {
  std::vector<std::int64_t> numbers;
  for (const at::Tensor& batch : loader)
    for (const std::int64_t number : first_column(batch.cpu())) numbers.push_back(number);
  return numbers;
}

TO_DEVICE_TEST_CASE("while the stream is captured into a graph no batch is taken, and the loop goes on afterwards") {
  using On = TestType;
  if (skipped<On>()) return;
  const int workers = GENERATE(0, 1);
  {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .to_device = on<On>().device()}, Numbers{12});
    auto it = loader.begin();
    const at::Tensor* const batch = &*it;
    const c10::Stream stream = new_stream<On>();
    {
      const OnStream here(stream);
      const typename On::Capture capture(stream);
      for (int times = 0; times < 2; ++times)
        CHECK_THROWS_WITH(++it,
                          ContainsSubstring(on<On>().device().str() + " while this thread's stream is captured") &&
                              ContainsSubstring("before the capture begins"));
      CHECK_THROWS_AS(loader.begin(), std::invalid_argument);
    }
    CHECK(batch->defined());
    CHECK(numbers_of(loader) == counting(12));
  }
  {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .to_device = on<On>().device()}, Numbers{12});
    auto it = loader.begin();
    {
      const c10::Stream stream = new_stream<On>();
      const OnStream here(stream);
      const typename On::Capture capture(stream);
      CHECK_THROWS_AS(++it, std::invalid_argument);
    }
    CHECK(first_column((*it).cpu()) == std::vector<std::int64_t>{0, 1, 2, 3});  // still the batch before
    ++it;
    CHECK(first_column((*it).cpu()) == std::vector<std::int64_t>{4, 5, 6, 7});
    ++it;
    CHECK(++it == loader.end());
  }
  {
    DataLoader loader({.batch_size = 4, .shuffle = true, .num_workers = workers, .to_device = on<On>().device()},
                      Numbers{12});
    {
      const c10::Stream stream = new_stream<On>();
      const OnStream here(stream);
      const typename On::Capture capture(stream);
      for (int times = 0; times < 2; ++times) CHECK_THROWS_AS(loader.begin(), std::invalid_argument);
    }
    // No epoch is lost, neither this one nor the next.
    DataLoader other({.batch_size = 4, .shuffle = true}, Numbers{12});
    for (int epoch = 0; epoch < 2; ++epoch) CHECK(numbers_of(loader) == numbers_of(other));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("to_device: the CPU and no device are the same, nothing is copied") {
  const shoal::DeviceChoice choice =
      GENERATE(shoal::DeviceChoice(), shoal::DeviceChoice(std::nullopt), shoal::DeviceChoice(at::kCPU),
               shoal::DeviceChoice([] { return at::kCPU; }));
  DataLoader loader({.batch_size = 4, .num_workers = 1, .to_device = choice}, Numbers{8});
  for (const at::Tensor& batch : loader) CHECK(shoal::is_shared(batch));
  CHECK(loader.profile(2).copy == 0);
}

TO_DEVICE_TEST_CASE("a function is asked once, by the process that loads, when its first loop begins") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    int asked = 0;
    const c10::Device last = on<On>(On::devices() - 1).device();
    DataLoader loader({.batch_size = 4,
                       .num_workers = 1,
                       .to_device =
                           [&asked, last] {
                             ++asked;
                             return last;
                           }},
                      Numbers{8});
    CHECK(asked == 0);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const at::Tensor& batch : loader) CHECK(batch.device() == last);
    CHECK(asked == 1);
  }
  CHECK(nothing_left<On>());
}

TO_DEVICE_TEST_CASE("a device without a number is the current one") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const c10::Device last = on<On>(On::devices() - 1).device();
    c10::impl::VirtualGuardImpl guard(On::kType);
    const c10::Device before = guard.exchangeDevice(last);
    DataLoader loader({.num_workers = 0, .to_device = On::kType}, Numbers{1});
    auto it = loader.begin();
    guard.setDevice(before);
    CHECK((*it).device() == last);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("to_device: what there is no device for is refused by name") {
  CHECK_THROWS_WITH(DataLoader({.to_device = at::kXLA}, Numbers{1}),
                    ContainsSubstring("to_device is xla") && ContainsSubstring("no devices of that kind"));
  DataLoader later({.to_device = [] { return at::Device(at::kXLA); }}, Numbers{1});
  CHECK_THROWS_AS(later.begin(), std::invalid_argument);
  DataLoader ninth({.to_device = at::Device(host_double::kType, 9)}, Numbers{1});
  CHECK_THROWS_WITH(ninth.begin(), ContainsSubstring(":9; this process sees 4"));
  CHECK_THROWS_WITH(DataLoader({.copies_ahead = -1}, Numbers{1}), ContainsSubstring("copies_ahead is -1"));
}

TO_DEVICE_TEST_CASE("profile() says the time of copies, by the device's clock") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DataLoader loader({.batch_size = 64, .num_workers = 1, .to_device = on<On>().device()}, rows(640));
    const shoal::LoaderProfile profile = loader.profile(10);
    CHECK(profile.copy > 0);
    CHECK(profile.batches_of_copies > 0);
    CHECK_THAT(profile.to_string(), ContainsSubstring("copy to device"));
  }
  shoal::LoaderProfile profile{.batches = 1, .workers = 2, .dataset = 0.01, .copy = 0.03, .step = 0.02};
  shoal::detail::conclude(profile);
  CHECK(profile.bottleneck() == "copies");
  profile.copy = 0.015;
  shoal::detail::conclude(profile);
  CHECK(profile.bottleneck() == "loop");
  CHECK(nothing_left<On>());
}
