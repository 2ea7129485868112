#include <shoal/internal/workers/datasets/parts/string_table.h>

#include <ATen/ops/empty.h>

#include <algorithm>

namespace shoal {

StringTable StringTable::of(std::span<const std::string> strings) {
  std::int64_t characters = 0;
  for (const std::string& string : strings) characters += std::int64_t(string.size());
  StringTable table{at::empty({characters}, at::TensorOptions(at::kByte)),
                    at::empty({std::int64_t(strings.size())}, at::TensorOptions(at::kLong))};
  auto* bytes = table.bytes.mutable_data_ptr<std::uint8_t>();
  auto* ends = table.ends.mutable_data_ptr<std::int64_t>();
  std::int64_t end = 0;
  for (const std::string& string : strings) {
    std::ranges::copy(string, bytes + end);
    *ends++ = end += std::int64_t(string.size());
  }
  return table;
}

std::string_view StringTable::operator[](std::int64_t index) const {
  const auto* all = ends.const_data_ptr<std::int64_t>();
  const std::int64_t start = index == 0 ? 0 : all[index - 1];
  return {static_cast<const char*>(bytes.const_data_ptr()) + start, std::size_t(all[index] - start)};
}

}  // namespace shoal
