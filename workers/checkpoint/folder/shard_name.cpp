#include <shoal/internal/workers/checkpoint/folder/shard_name.h>

#include <fmt/format.h>

#include <charconv>

namespace shoal::detail {
namespace {

constexpr std::string_view kEnding = ".checkpoint", kUnfinishedEnding = ".part";

bool skip(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <class Number>
bool take(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(std::size_t(end - text.data()));
  return true;
}

}  // namespace

std::string shard_file_name(const ShardName& shard) {
  return fmt::format("step-{:012}.rank-{}-of-{}{}", shard.step, shard.rank, shard.ranks, kEnding);
}

std::optional<ShardName> parse_shard_name(std::string_view name) {
  ShardName shard;
  if (!skip(name, "step-") || !take(name, shard.step) || !skip(name, ".rank-") || !take(name, shard.rank) ||
      !skip(name, "-of-") || !take(name, shard.ranks) || !skip(name, kEnding) || shard.rank >= shard.ranks ||
      shard.ranks > kMostRanks)
    return std::nullopt;
  shard.unfinished = !name.empty();
  if (shard.unfinished && !name.ends_with(kUnfinishedEnding)) return std::nullopt;
  return shard;
}

}  // namespace shoal::detail
