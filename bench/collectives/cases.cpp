#include "bench/collectives/cases.h"

#include <fmt/format.h>

#include <iterator>
#include <stdexcept>

namespace shoal::bench {
namespace {

constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                  "broadcast",  "barrier",    "send and recv"};
constexpr std::size_t kSizes[] = {8, 64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 4 << 20, 32 << 20, 64 << 20};

std::string size_name(std::size_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

bool has_parts(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter ||
         operation == Operation::all_to_all;
}

}  // namespace

const char* name_of(Operation operation) { return kNames[int(operation)]; }

std::string CollectiveCase::word() const { return fmt::format("{}:{}", name_of(operation), bytes); }

std::string CollectiveCase::name(int ranks) const {
  std::string text = fmt::format("{} ranks, {}", ranks, name_of(operation));
  if (operation != Operation::barrier) text += " of " + size_name(bytes);
  return text;
}

CollectiveCase case_of(const std::string& word) {
  const std::size_t colon = word.find(':');
  for (std::size_t i = 0; i < std::size(kNames) && colon != std::string::npos; ++i)
    if (word.compare(0, colon, kNames[i]) == 0) return {Operation(i), std::stoul(word.substr(colon + 1))};
  throw std::invalid_argument("no case: " + word);
}

std::vector<CollectiveCase> collective_cases(int ranks, std::size_t most_bytes) {
  std::vector<CollectiveCase> cases{{Operation::barrier, 0}};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const auto operation = Operation(i);
    if (operation == Operation::barrier) continue;
    for (const std::size_t bytes : kSizes)
      if (bytes <= most_bytes && (!has_parts(operation) || bytes >= sizeof(float) * std::size_t(ranks)))
        cases.push_back({operation, bytes});
  }
  return cases;
}

}  // namespace shoal::bench
