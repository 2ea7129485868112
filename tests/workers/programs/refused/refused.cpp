// Data sets of data sets by their names alone, which must not compile: the message names the remedy.
#include <shoal/workers/datasets/chain_dataset.h>
#include <shoal/workers/datasets/concat_dataset.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

template <int kind>
struct Powers {
  std::int64_t size() const { return 4; }
  std::int64_t get(std::int64_t index) const { return index * kind; }
};

struct Endless {
  std::optional<int> next() { return 1; }
};
template <int kind>
struct Ones {
  Endless stream() const { return {}; }
};

void concatenate(Powers<0> a, Powers<0> b, Powers<1> c) {
  auto both = shoal::concat_datasets(a, c);
  auto same = shoal::concat_datasets(std::vector{a, b});
  [[maybe_unused]] shoal::ConcatDataset<std::tuple<Powers<0>, Powers<1>>> named = both;
  shoal::ConcatDataset copy(same);
  auto nested = shoal::concat_datasets(both, copy);
#if REFUSED == 1
  // refused: ConcatDataset is not made by its name: write concat_datasets.a, b., or concat_datasets.sets.
  shoal::ConcatDataset refused(a, b);
  // refused: ConcatDataset is not made by its name: write concat_datasets.a, b., or concat_datasets.sets.
  shoal::ConcatDataset<Powers<0>> named_alone;
#elif REFUSED == 2
  // refused: ConcatDataset is not made by its name: write concat_datasets.a, b., or concat_datasets.sets.
  auto refused = shoal::ConcatDataset({a, b});
#elif REFUSED == 3
  // refused: ConcatDataset is not made by its name: write concat_datasets.a, b., or concat_datasets.sets.
  auto refused = shoal::ConcatDataset{a, c};
#endif
}

void chain(Ones<0> a, Ones<0> b, Ones<1> c) {
  auto both = shoal::chain_datasets(a, c);
  auto same = shoal::chain_datasets(std::vector{a, b});
  shoal::ChainDataset copy(same);
  [[maybe_unused]] shoal::ChainDataset<std::tuple<Ones<0>, Ones<1>>> named = both;
#if REFUSED == 1
  // refused: ChainDataset is not made by its name: write chain_datasets.a, b., or chain_datasets.sets.
  shoal::ChainDataset refused(a, c);
#elif REFUSED == 2
  // refused: ChainDataset is not made by its name: write chain_datasets.a, b., or chain_datasets.sets.
  auto refused = shoal::ChainDataset({a, b});
#endif
}
