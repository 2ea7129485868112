// What must not compile, one CASE at a time; the message names the reason. CASE 0 is what does compile.
#include <shoal/workers/datasets/chain_dataset.h>
#include <shoal/workers/datasets/concat_dataset.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

struct Squares {
  std::int64_t size() const { return 4; }
  std::int64_t get(std::int64_t index) const { return index * index; }
};
struct Cubes {
  std::int64_t size() const { return 4; }
  std::int64_t get(std::int64_t index) const { return index * index * index; }
};

struct Endless {
  std::optional<int> next() { return 1; }
};
struct Ones {
  Endless stream() const { return {}; }
};
struct Twos {
  Endless stream() const { return {}; }
};

void chain() {
  [[maybe_unused]] Ones a, b;
  [[maybe_unused]] Twos c;
#if CASE == 0
  auto both = shoal::chain_datasets(a, c);
  auto same = shoal::chain_datasets(std::vector{a, b});
  shoal::ChainDataset copy(same);
  [[maybe_unused]] shoal::ChainDataset<std::tuple<Ones, Twos>> named = both;
#elif CASE == 5
  shoal::ChainDataset both(a, c);
#elif CASE == 6
  auto both = shoal::ChainDataset({a, b});
#endif
}

void concatenate() {
  [[maybe_unused]] Squares a, b;
  [[maybe_unused]] Cubes c;
#if CASE == 0
  auto both = shoal::concat_datasets(a, c);
  auto same = shoal::concat_datasets(std::vector{a, b});
  [[maybe_unused]] shoal::ConcatDataset<std::tuple<Squares, Cubes>> named = both;
  shoal::ConcatDataset copy(same);
  auto nested = shoal::concat_datasets(both, copy);
#elif CASE == 1
  shoal::ConcatDataset both(a, b);
#elif CASE == 2
  auto both = shoal::ConcatDataset({a, b});
#elif CASE == 3
  auto both = shoal::ConcatDataset{a, c};
#elif CASE == 4
  shoal::ConcatDataset<Squares> both;
#endif
}
