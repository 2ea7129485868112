// In which batches a loader visits its data set, and from where: what holds for every kind of data set.
#pragma once

#include <shoal/internal/workers/plan/loader_pass.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_state.h>

#include <cstdint>
#include <memory>
#include <string>

namespace shoal::detail {

/// IndexOrder (map-style data sets) or StreamOrder (iterable ones); a value of that type belongs to the loader, one
/// thread.
class LoaderOrder {
 public:
  virtual ~LoaderOrder() = default;

  /// Which epoch's order the next pass has.
  virtual void set_epoch(std::int64_t /*epoch*/) {}
  /// Where the loader's loop number `epoch` begins.
  [[nodiscard]] LoaderState beginning_of(std::int64_t epoch) const;
  /// Where a loop goes on from `state`: what the state leaves to the loader is filled in. Throws std::invalid_argument
  /// for a state that this loader cannot go on from.
  [[nodiscard]] LoaderState going_on_from(const LoaderState& state) const;
  /// What is left of the epoch that set_epoch() said, from the state's place on. Passes with another `number` share no
  /// stream.
  [[nodiscard]] virtual std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const = 0;
  /// Batches of a whole epoch. Throws std::logic_error if that is not known.
  [[nodiscard]] virtual std::int64_t batches() const = 0;

 protected:
  /// `dataset_size` as states say it: 0 if it is not known. Throws std::invalid_argument for options that no loader
  /// can have.
  LoaderOrder(const DataLoaderOptions& options, std::int64_t dataset_size);
  LoaderOrder(const LoaderOrder&) = default;

  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }

 private:
  /// Which epoch's order the loader's loop number `epoch` has.
  [[nodiscard]] virtual std::int64_t order_epoch(std::int64_t epoch) const { return epoch; }
  /// What the order follows from besides the epoch; one line.
  [[nodiscard]] virtual std::string description() const = 0;
  /// Throws std::invalid_argument for the state of another order.
  virtual void check(const LoaderState& state) const = 0;

  std::uint64_t seed_;
  std::int64_t dataset_size_;
};

}  // namespace shoal::detail
