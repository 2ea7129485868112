#include <shoal/internal/workers/train/hogwild/sparse_rows.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/hogwild/element_types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace shoal::hogwild {
namespace {

/// A row, and where among the gradient's values its own are.
struct Occurrence {
  std::int64_t row;
  std::int64_t place;
};

struct Order {
  std::int64_t largest = -1;
  bool ascends = true;  // strictly, so that no row comes twice
};

Order order_of(std::span<const std::int64_t> rows, std::int64_t bound) {
  Order order;
  std::int64_t before = -1;
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= bound)
      throw std::out_of_range(fmt::format("row {}, where there are rows from 0 to {}", row, bound - 1));
    order.ascends = order.ascends && row > before;
    order.largest = std::max(order.largest, row);
    before = row;
  }
  return order;
}

/// By rows; those of one row stay in their order. Byte by byte from the lowest: as quick for 256 rows as for a million.
std::vector<Occurrence> sorted(std::span<const std::int64_t> rows, std::int64_t largest) {
  std::vector<Occurrence> occurrences(rows.size()), other(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) occurrences[i] = {.row = rows[i], .place = std::int64_t(i)};
  const auto bits = std::size_t(std::bit_width(std::uint64_t(largest)));
  for (std::size_t shift = 0; shift < bits; shift += 8) {
    const auto digit = [&](const Occurrence& occurrence) { return std::size_t(occurrence.row >> shift) & 0xff; };
    std::array<std::size_t, 256> next{};
    for (const Occurrence& occurrence : occurrences) ++next[digit(occurrence)];
    std::size_t before = 0;
    for (std::size_t& count : next) before += std::exchange(count, before);
    for (const Occurrence& occurrence : occurrences) other[next[digit(occurrence)]++] = occurrence;
    occurrences.swap(other);
  }
  return occurrences;
}

/// What values of one row add up to.
template <class T>
class RowSum {
 public:
  explicit RowSum(std::int64_t size) : sum_(std::size_t(size)) {}

  void set(const std::byte* values) {
    const T* from = reinterpret_cast<const T*>(values);
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] = Math<T>(from[i]);
  }
  void add(const std::byte* values) {
    const T* from = reinterpret_cast<const T*>(values);
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += Math<T>(from[i]);
  }
  void store(std::byte* values) const {
    T* to = reinterpret_cast<T*>(values);
    for (std::size_t i = 0; i < sum_.size(); ++i) to[i] = T(sum_[i]);
  }

 private:
  std::vector<Math<T>> sum_;
};

}  // namespace

SparseRows::SparseRows(const at::Tensor& rows, at::Tensor values, std::int64_t bound) : given_(std::move(values)) {
  const at::Tensor in_line = rows.contiguous();
  const std::span<const std::int64_t> all(in_line.const_data_ptr<std::int64_t>(), std::size_t(in_line.numel()));
  const Order order = order_of(all, bound);
  const std::int64_t size = given_.size(1), row_bytes = size * std::int64_t(given_.element_size());
  const auto* first = static_cast<const std::byte*>(given_.const_data_ptr());
  numbers_.reserve(all.size());
  places_.reserve(all.size());
  if (order.ascends) {
    numbers_.assign(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) places_.push_back(first + std::int64_t(i) * row_bytes);
    return;
  }
  const std::vector<Occurrence> occurrences = sorted(all, order.largest);
  std::vector<std::span<const Occurrence>> several;  // of rows that come more than once
  for (std::size_t from = 0, end = 0; from < occurrences.size(); from = end) {
    while (end < occurrences.size() && occurrences[end].row == occurrences[from].row) ++end;
    if (end - from > 1) several.emplace_back(&occurrences[from], end - from);
    numbers_.push_back(occurrences[from].row);
    places_.push_back(end - from > 1 ? nullptr : first + occurrences[from].place * row_bytes);
  }
  if (several.empty()) return;
  sums_ = at::empty({std::int64_t(several.size()), size}, given_.options());
  auto* next_sum = static_cast<std::byte*>(sums_.data_ptr());
  with_element_type(given_.scalar_type(), [&]<class T>() {
    RowSum<T> sum(size);
    auto place = places_.begin();
    for (const auto& of_row : several) {
      sum.set(first + of_row[0].place * row_bytes);
      for (const Occurrence& occurrence : of_row.subspan(1)) sum.add(first + occurrence.place * row_bytes);
      sum.store(next_sum);
      place = std::find(place, places_.end(), nullptr);
      *place = next_sum;
      next_sum += row_bytes;
    }
  });
}

at::Tensor& SparseRows::own_values() {
  if (own_.defined()) return own_;
  const std::int64_t row_bytes = given_.size(1) * std::int64_t(given_.element_size());
  own_ = at::empty({std::int64_t(places_.size()), given_.size(1)}, given_.options());
  auto* to = static_cast<std::byte*>(own_.data_ptr());
  for (const std::byte*& place : places_) {
    if (row_bytes != 0) std::memcpy(to, place, std::size_t(row_bytes));  // no memory, no address
    place = std::exchange(to, to + row_bytes);
  }
  return own_;
}

}  // namespace shoal::hogwild
