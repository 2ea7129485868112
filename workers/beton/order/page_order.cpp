#include <shoal/internal/workers/beton/order/page_order.h>

#include <shoal/workers/data/sample_random.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace shoal::detail {
namespace {

constexpr std::uint64_t kOfSamples = 0x6f72646572, kOfPages = 0x7061676573;  // "order", "pages"

/// Fisher and Yates; SampleRandom's draws are the same everywhere.
void shuffle(std::span<std::int64_t> values, SampleRandom& random) {
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[std::size_t(random.below(std::int64_t(i)))]);
}

std::vector<std::int64_t> counted(std::int64_t size) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

std::vector<std::int64_t> random_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order = counted(size);
  SampleRandom random({seed, std::uint64_t(epoch), 0}, kOfSamples);
  shuffle(order, random);
  return order;
}

std::vector<std::int64_t> quasi_random_order(std::span<const std::int64_t> pages, std::int64_t window,
                                             std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> by_page = counted(std::int64_t(pages.size()));
  std::ranges::stable_sort(by_page, {}, [&](std::int64_t sample) { return pages[std::size_t(sample)]; });
  std::vector<std::size_t> begins;  // of each page's samples in by_page, and the end
  for (std::size_t i = 0; i < by_page.size(); ++i)
    if (i == 0 || pages[std::size_t(by_page[i])] != pages[std::size_t(by_page[i - 1])]) begins.push_back(i);
  begins.push_back(by_page.size());
  std::vector<std::int64_t> dealt = counted(std::int64_t(begins.size()) - 1);
  SampleRandom of_pages({seed, std::uint64_t(epoch), 0}, kOfPages),
      of_samples({seed, std::uint64_t(epoch), 0}, kOfSamples);
  shuffle(dealt, of_pages);
  std::vector<std::int64_t> order;
  order.reserve(by_page.size());
  for (std::size_t first = 0; first < dealt.size(); first += std::size_t(window)) {
    const std::size_t begin = order.size();
    for (std::size_t i = first; i < std::min(dealt.size(), first + std::size_t(window)); ++i) {
      const auto page = std::size_t(dealt[i]);
      order.insert(order.end(), by_page.begin() + std::ptrdiff_t(begins[page]),
                   by_page.begin() + std::ptrdiff_t(begins[page + 1]));
    }
    shuffle(std::span(order).subspan(begin), of_samples);
  }
  return order;
}

}  // namespace shoal::detail
