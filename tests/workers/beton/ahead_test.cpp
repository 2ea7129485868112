// Pages read ahead of a loop and given back behind it; and ranks that share a file.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <shoal/internal/workers/beton/order/page_ahead.h>
#include <shoal/internal/workers/beton/order/page_order.h>
#include <shoal/internal/workers/beton/order/page_reader.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/beton/beton_writer.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct Filling {
  at::Tensor filling;
  std::int64_t label;
};
struct FillingTensors {
  at::Tensor filling, label;
};
struct Fillings {
  std::int64_t count = 120, bytes = 200'000;
  std::int64_t size() const { return count; }
  Filling get(std::int64_t i) const { return {at::full({bytes}, i % 251, at::kByte), i}; }
};

/// Ten samples a page of 2 MiB.
std::string written(const TemporaryFolder& folder, std::int64_t count = 120) {
  BetonWriter(folder.file("it"), {.page_bytes = 2U << 20U}).write(Fillings{.count = count});
  return folder.file("it");
}

std::vector<std::int64_t> labels_of(auto& loader) {
  std::vector<std::int64_t> labels;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch["label"].size(0); ++i) {
      labels.push_back(batch["label"][i].template item<std::int64_t>());
      CHECK(batch["filling"][i][17].template item<std::int64_t>() == labels.back() % 251);
    }
  return labels;
}

/// Bytes of the file that are in the kernel's cache.
std::size_t resident(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto bytes = std::size_t(std::filesystem::file_size(path)), page = std::size_t(::sysconf(_SC_PAGESIZE));
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  REQUIRE(at != MAP_FAILED);
  std::vector<unsigned char> there((bytes + page - 1) / page);
  REQUIRE(::mincore(at, bytes, there.data()) == 0);
  ::munmap(at, bytes);
  return std::size_t(std::ranges::count_if(there, [](unsigned char c) { return (c & 1U) != 0; })) * page;
}

void forget(const BetonFile& file) {
  for (std::uint64_t page = 0; page * file.page_bytes() < file.file_bytes(); ++page) file.forget_page(page);
}

/// Until the kernel, and whoever asks it, have done so; a test that waits for ever is ended by the watchdog.
void wait_until(auto&& is_so) {
  while (!is_so()) std::this_thread::yield();
}

std::vector<std::int64_t> labels_of_rank(int /*rank*/, std::string path, BetonOrder order, std::string state) {
  BetonLoader loader(
      path, {.batch_size = 5, .num_workers = 1, .order = order, .distributed = true, .seed = 4, .window_pages = 3});
  std::vector<std::int64_t> labels;
  if (!state.empty()) {
    loader.load_state_dict(LoaderState::from_string(state));
    for (auto& batch : loader)
      for (std::int64_t i = 0; i < batch["label"].size(0); ++i)
        labels.push_back(batch["label"][i].item<std::int64_t>());
    return labels;
  }
  for (auto& batch : loader) {  // four batches, and then the rank stops
    for (std::int64_t i = 0; i < 5; ++i) labels.push_back(batch["label"][i].item<std::int64_t>());
    if (labels.size() == 20) break;
  }
  return labels;
}
std::string state_after(std::string path, BetonOrder order, int ranks) {
  BetonLoader loader(path, {.batch_size = 5 * ranks, .order = order, .seed = 4, .window_pages = 3});
  auto at = loader.begin();
  for (int batch = 1; batch < 4; ++batch) ++at;
  return loader.state_dict().to_string();
}

}  // namespace

TEST_CASE("page ahead: holds as many pages as it may, each from before its first sample until all have gone") {
  std::vector<std::int64_t> pages;
  for (std::int64_t i = 0; i < 1000; ++i) pages.push_back(i / 20);
  std::vector<std::int64_t> order;
  for (const std::int64_t sample : shoal::detail::quasi_random_order(pages, 4, 3, 1))
    order.push_back(pages[std::size_t(sample)]);
  for (const std::size_t most : {std::size_t(1), std::size_t(4), std::size_t(7), std::size_t(100)}) {
    shoal::detail::PageAhead ahead(order, most);
    std::set<std::int64_t> held, gone;
    for (std::int64_t done = 0; done <= 1000; done += 8) {
      const auto step = ahead.advance(done);
      for (const std::int64_t page : step.drop) {
        held.erase(page);  // or it was in nobody's way: used before there was room for it
        CHECK(std::find(order.begin() + done, order.end(), page) == order.end());  // nobody needs it any more
        CHECK(gone.insert(page).second);
      }
      for (const std::int64_t page : step.fetch) {
        CHECK(!gone.contains(page));
        CHECK(held.insert(page).second);
      }
      CHECK(held.size() <= most);
      if (most >= 7)  // a window of four, and more
        for (std::int64_t i = done; i < std::min<std::int64_t>(done + 8, 1000); ++i)
          CHECK(held.contains(order[std::size_t(i)]));
    }
    CHECK(gone.size() == 50);
    CHECK(held.empty());
  }
  shoal::detail::PageAhead none({-1, -1}, 3);
  CHECK(none.advance(0).fetch.empty());
}

TEST_CASE("page reader: brings pages into the kernel's cache and takes them out") {
  const TemporaryFolder folder;
  const std::string path = written(folder, 200);  // 20 pages
  const BetonFile file(path);
  const auto all_pages = file.file_bytes() / file.page_bytes();
  forget(file);
  if (resident(path) > 4U << 20U) {
    WARN("this file system keeps what it is told to forget: nothing to see here");
    return;
  }
  const std::size_t before = resident(path);
  shoal::detail::PageReader reader;
  for (const std::uint64_t page : {3, 11, 7}) reader.read({file, page});
  wait_until([&] { return resident(path) >= before + (4U << 20U); });
  reader.wait();
  CHECK(resident(path) <= before + (8U << 20U));
  for (const std::uint64_t page : {3, 11, 7}) reader.give_back({file, page});
  wait_until([&] { return resident(path) <= before + (3U << 20U); });  // without what was still being read
  // Many at a time, each given back before its turn or after it: all comes to an end.
  for (std::uint64_t page = 1; page < all_pages; ++page) reader.read({file, page});
  for (std::uint64_t page = 1; page < all_pages; ++page) reader.give_back({file, page});
  reader.wait();
}

TEST_CASE("page reader: pages that are not there, files that are gone and an early end are no errors") {
  const TemporaryFolder folder;
  const std::string path = written(folder);
  const BetonFile file(path);
  {
    shoal::detail::PageReader reader;
    for (const std::uint64_t page : {std::uint64_t(1000), std::uint64_t(1) << 60U}) {
      reader.read({file, page});
      reader.give_back({file, page});
    }
    reader.wait();
    for (int i = 0; i < 1000; ++i) reader.read({file, std::uint64_t(i % 12)});
    reader.forget_reads();
    for (int i = 0; i < 1000; ++i) reader.read({file, std::uint64_t(i % 12)});
  }
  std::filesystem::remove(path);
  shoal::detail::PageReader reader;
  reader.read({file, 1});
  reader.give_back({file, 1});
  reader.wait();
  CHECK(file.integer(119, file.field("label")) == 119);  // it is mapped
}

TEST_CASE("page reader: a forked child's copy does nothing, and ends") {
  const TemporaryFolder folder;
  const BetonFile file(written(folder));
  auto reader = std::make_unique<shoal::detail::PageReader>();
  for (int i = 0; i < 100; ++i) reader->read({file, std::uint64_t(i % 12)});
  const pid_t child = ::fork();
  if (child == 0) {
    reader->read({file, 1});
    reader->give_back({file, 1});
    reader->forget_reads();
    reader->wait();
    reader.reset();
    ::_exit(17);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 17);
  reader->wait();
}

TEST_CASE("beton loader: the same samples whether pages stay, are read ahead or given back, also from the middle on") {
  const TemporaryFolder folder;
  const std::string path = written(folder);
  for (const BetonOrder order : {BetonOrder::sequential, BetonOrder::random, BetonOrder::quasi_random}) {
    const BetonLoaderOptions plain{.batch_size = 8, .order = order, .seed = 2, .drop_last = false, .window_pages = 2};
    BetonLoader whole(path, plain);
    const std::vector<std::int64_t> first = labels_of(whole), second = labels_of(whole);
    for (const int workers : {0, 2}) {
      BetonLoaderOptions ahead = plain;
      ahead.num_workers = workers;
      ahead.os_cache = workers == 0;
      ahead.read_ahead_bytes = workers == 0 ? 6U << 20U : 0;
      BetonLoader loader(path, ahead);
      CHECK(labels_of(loader) == first);
      CHECK(labels_of(loader) == second);
      std::string state;
      {
        auto at = whole.begin();
        for (int batch = 0; batch < 4; ++batch) ++at;
        state = whole.state_dict().to_string();
      }
      loader.load_state_dict(LoaderState::from_string(state));
      CHECK(labels_of(loader).size() == 120 - 40);
    }
  }
  CHECK_THROWS_AS(BetonLoader(path, {.os_cache = false, .loader = {.in_order = false}}), std::invalid_argument);
}

TEST_CASE("beton loader: without os_cache an epoch leaves few pages of the file in the kernel's cache") {
  const TemporaryFolder folder;
  const std::string path = written(folder, 200);  // 20 pages
  const BetonFile file(path);
  forget(file);
  if (resident(path) > 8U << 20U) {
    WARN("this file system keeps what it is told to forget: nothing to see here");
    return;
  }
  const BetonLoaderOptions options{.batch_size = 10, .order = BetonOrder::quasi_random, .window_pages = 2};
  BetonLoaderOptions gives_back = options;
  gives_back.os_cache = false;
  for (const int workers : {0, 1}) {
    gives_back.num_workers = workers;
    BetonLoader loader(path, gives_back);
    for (int epoch = 0; epoch < 3; ++epoch) {
      CHECK(labels_of(loader).size() == 200);
      // Two windows ahead, the last of which nobody has passed, and what the kernel reads and keeps by itself: on a busy
      // machine that is more, since it keeps what was still being read or mapped in when it was asked.
      wait_until([&] { return resident(path) <= 36U << 20U; });
    }
  }
  forget(file);
  gives_back.num_workers = 1;
  BetonLoader<FillingTensors> single(path, gives_back);  // whose workers make samples, and no batches
  std::int64_t seen = 0;
  for (auto& batch : single) seen += batch.label.size(0);
  CHECK(seen == 200);
  wait_until([&] { return resident(path) <= 36U << 20U; });
  BetonLoader keeps(path, options);
  CHECK(labels_of(keeps).size() == 200);
  CHECK(resident(path) > 36U << 20U);
}

TEST_CASE("beton loader: ranks share an epoch, stop in its middle, and another number of ranks sees the rest") {
  const TemporaryFolder folder;
  const std::string path = written(folder);
  for (const BetonOrder order : {BetonOrder::sequential, BetonOrder::random, BetonOrder::quasi_random}) {
    std::vector<std::int64_t> seen;
    for (const auto& labels : spawn({.nprocs = 3}, labels_of_rank, path, order, std::string())) {
      CHECK(labels.size() == 20);
      seen.insert(seen.end(), labels.begin(), labels.end());
    }
    for (const auto& labels : spawn({.nprocs = 2}, labels_of_rank, path, order, state_after(path, order, 3))) {
      CHECK(labels.size() == 30);
      seen.insert(seen.end(), labels.begin(), labels.end());
    }
    std::ranges::sort(seen);
    std::vector<std::int64_t> all(120);
    std::iota(all.begin(), all.end(), 0);
    CHECK(seen == all);
  }
}

TEST_CASE("beton loader: pages are read ahead for the loop that begins, also behind one that was left early") {
  const TemporaryFolder folder;
  struct Loader : BetonLoader<> {
    using BetonLoader<>::BetonLoader;
    using BetonLoader<>::next_begin;
  };
  Loader loader(written(folder), {.batch_size = 5, .read_ahead_bytes = 8U << 20U});
  int seen = 0;
  for ([[maybe_unused]] auto& batch : loader)
    if (++seen == 3) break;
  CHECK(loader.state_dict().place == 15);
  CHECK(loader.next_begin().place == 0);
  CHECK(loader.next_begin().epoch == 1);
  CHECK(labels_of(loader).size() == 120);
  CHECK_THROWS_WITH(BetonLoader(written(folder), {.loader = {.prefetch_factor = 8}}),
                    ContainsSubstring("prefetch_factor is 8") && ContainsSubstring("batches_ahead"));
  CHECK_THROWS_WITH(BetonLoader(written(folder), {.loader = {.batch_size = 8}}),
                    "BetonLoader: loader.batch_size is 8, and batch_size, which counts, is 1: set batch_size");
  CHECK_THROWS_WITH(BetonLoader(written(folder), {.loader = {.num_workers = 2}}), ContainsSubstring("set num_workers"));
  CHECK_THROWS_WITH(BetonLoader(written(folder), {.loader = {.seed = 7}}), ContainsSubstring("set seed"));
  CHECK_THROWS_WITH(BetonLoader(written(folder), {.drop_last = false, .loader = {.drop_last = true}}),
                    ContainsSubstring("set drop_last"));
  CHECK_NOTHROW(BetonLoader(written(folder), {.batch_size = 8, .loader = {.batch_size = 8}}));
}
