#include <shoal/workers/train/join.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/workers/train/communicator.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {

Join::Join(std::vector<std::reference_wrapper<Joinable>> joinables, const JoinOptions& options)
    : joinables_(std::move(joinables)), options_(options), exceptions_(std::uncaught_exceptions()) {
  if (joinables_.empty()) throw std::invalid_argument("Join of nothing: give at least one joinable");
  process_group_ = joinables_.front().get().join_group();
  for (const Joinable& joinable : joinables_)
    if (joinable.join_group() != process_group_)
      throw std::invalid_argument("Join of what works in several process groups: each group needs its own");
  for (auto each = joinables_.begin(); each != joinables_.end(); ++each)
    if (std::any_of(joinables_.begin(), each, [&](const auto& before) { return &before.get() == &each->get(); }))
      throw std::invalid_argument(fmt::format("joinable {} of a Join stands in its list before already: give each once",
                                              each - joinables_.begin() + 1));
  step_.active = process_group_->getSize();
  std::size_t joined = 0;
  try {
    for (Joinable& joinable : joinables_) {
      joinable.set_join(this);
      ++joined;
    }
  } catch (...) {
    while (joined > 0) joinables_[--joined].get().set_join(nullptr);
    throw;
  }
}

Join::~Join() {
  if (!joinables_.empty() && !failed_ && std::uncaught_exceptions() <= exceptions_)
    log_warning(
        "a Join ended without finish() after {} steps: ranks that have more batches wait for this one; call finish() "
        "when the loop has ended",
        steps_);
  leave();
}

void Join::leave() {
  for (Joinable& joinable : joinables_) joinable.set_join(nullptr);
  joinables_.clear();
}

/// The one collective of Join's own: every rank says whether it has a batch and whether it reduces gradients.
void Join::meet(bool has_data, bool syncs) {
  const int ranks = process_group_->getSize();
  at::Tensor own = at::empty({2}, at::kLong);
  own.data_ptr<std::int64_t>()[0] = has_data ? 1 : 0;
  own.data_ptr<std::int64_t>()[1] = syncs ? 1 : 0;
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < ranks; ++rank) all[0].push_back(at::empty({2}, at::kLong));
  std::vector<at::Tensor> input{own};
  has_met_ = false;
  failed_ = true;
  process_group_->allgather(all, input)->wait();
  has_met_ = true;
  JoinStep step{.active = 0, .first_active = step_.first_active, .syncs = true};
  bool differ = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto* said = all[0][std::size_t(rank)].data_ptr<std::int64_t>();
    if (said[0] == 0) {
      step.ended.push_back(rank);
      continue;
    }
    if (step.active++ == 0) {
      step.first_active = rank;
      step.syncs = said[1] != 0;
    } else {
      differ = differ || step.syncs != (said[1] != 0);
    }
  }
  step_ = step;
  if (differ)
    throw std::invalid_argument(
        fmt::format("step {} of a Join: some ranks reduce their gradients, others are in no_sync()", steps_));
  if (options_.throw_when_one_ends && !step.ended.empty() && step.active > 0)
    throw Error(fmt::format("rank {} has no batch for step {} of a Join, and rank {} has one", step.ended.front(),
                            steps_, step.first_active));
  failed_ = false;
  ++steps_;
}

bool Join::any_failed() const {
  return std::ranges::any_of(joinables_, [](const Joinable& joinable) { return joinable.has_failed(); });
}

/// All of them, so that every rank does the same, whichever of its joinables have failed.
void Join::start_anew() {
  for (Joinable& joinable : joinables_) joinable.start_anew();
}

std::size_t Join::place_of(const Joinable& joinable) const {
  return std::size_t(std::ranges::find(joinables_, &joinable, [](const auto& each) { return &each.get(); }) -
                     joinables_.begin());
}

void Join::check_turn(const Joinable& joinable, std::size_t place) const {
  if (joinable.has_failed())
    throw Error(
        "a step of a Join in which a pass has failed cannot go on: begin the next one with the Join's first joinable");
  if (steps_ == 0 || place <= last_)
    throw std::invalid_argument(
        fmt::format("joinable {} of a Join comes {} in a step: ranks without a batch do each once, in the order in "
                    "which they are given",
                    place + 1,
                    steps_ == 0      ? "before the first one"
                    : place == last_ ? "twice"
                                     : fmt::format("behind {}", last_ + 1)));
  for (std::size_t before = last_ + 1; before < place; ++before)
    if (joinables_[before].get().has_turn())
      throw std::invalid_argument(fmt::format(
          "joinable {} of a Join comes before {} in a step: ranks without a batch do each once, in the order "
          "in which they are given",
          place + 1, before + 1));
}

const JoinStep& Join::in_turn(const Joinable& joinable) const {
  const std::size_t place = place_of(joinable);
  if (place == 0)
    throw std::invalid_argument(
        "the first joinable of a Join has a collective before the one that begins its step: ranks without a batch do "
        "not come to it; give Join the DistributedDataParallel first");
  check_turn(joinable, place);
  return step_;
}

const JoinStep& Join::announce(const Joinable& joinable, bool syncs) {
  const std::size_t place = place_of(joinable);
  if (place == 0) {
    has_met_ = false;
    if (any_failed()) start_anew();
    meet(true, syncs);
  } else {
    check_turn(joinable, place);
  }
  last_ = place;
  return step_;
}

int Join::divisor() const {
  return options_.mean == JoinMean::over_all_ranks ? process_group_->getSize() : step_.active;
}

void Join::finish() {
  if (joinables_.empty()) return;
  try {
    for (bool failed = false; failed || step_.active > 0;) {
      has_met_ = false;
      try {
        if (failed || any_failed()) start_anew();
        failed = false;
        shadow_step();
      } catch (const CollectiveMismatch& error) {
        log_warning("a Join's finish(): {}; if that rank's pass has failed, all start anew", error.what());
        failed = true;
      }
    }
    for (Joinable& joinable : joinables_) joinable.end_join(step_.first_active);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

/// One step of the others, if they have one.
void Join::shadow_step() {
  meet(false, true);
  if (step_.active == 0) return;
  for (Joinable& joinable : joinables_) joinable.shadow(step_);
}

}  // namespace shoal
