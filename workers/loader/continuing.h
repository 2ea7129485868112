// A loader's loop that goes on behind batches that fail.
#pragma once

#include <cstddef>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

namespace shoal {

/// The range that DataLoader::continuing() returns: the loader's thread passes over it once. The loader has to outlive
/// it.
template <class Loader, class OnFailure>
class Continuing {
 public:
  /// After so many failures in a row it throws: they are no accident, and a stream that throws for ever has no end.
  static constexpr int kMostInARow = 100;

  /// Made by DataLoader::continuing().
  Continuing(Loader& loader, OnFailure on_failure) : loader_(&loader), on_failure_(std::move(on_failure)) {}

  /// One loop over the loader; single pass.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = typename Loader::Batch;

    value_type& operator*() const { return **at_; }    ///< the batch
    value_type* operator->() const { return &**at_; }  ///< a member of the batch
    /// Waits for the next batch that could be made; on_failure hears of the others.
    Iterator& operator++() {
      owner_->attempt([&] { ++*at_; });
      return *this;
    }
    void operator++(int) { ++*this; }  ///< as ++iterator
    bool operator==(std::default_sentinel_t) const { return *at_ == std::default_sentinel; }

   private:
    friend class Continuing;
    explicit Iterator(Continuing& owner) : owner_(&owner) {
      owner.attempt([&] { at_.emplace(owner.loader_->begin()); });
    }

    Continuing* owner_;
    std::optional<typename Loader::Iterator> at_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  /// Until it has a batch, or the loop is over.
  template <class Step>
  void attempt(Step&& step) {
    for (int failures = 1;; ++failures) try {
        return step();
      } catch (const std::exception& error) {
        if (!loader_->batch_has_failed_ || failures == kMostInARow) throw;
        on_failure_(error);
      }
  }

  Loader* loader_;
  OnFailure on_failure_;
};

}  // namespace shoal
