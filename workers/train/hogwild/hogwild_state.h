// What a process has of an optimizer that it shares: the block, the parameters, what is kept for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/hogwild/hogwild_layout.h>
#include <shoal/internal/workers/train/hogwild/participants.h>
#include <shoal/internal/workers/train/hogwild/span_update.h>
#include <shoal/ipc/heap.h>
#include <shoal/workers/train/hogwild_optimizer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::hogwild {

/// What an optimizer of these options keeps for a parameter, by place in Span::kept; null: not kept. The places that are
/// kept follow each other in torch's order.
std::array<const char*, kMostKept> names_kept(Rule rule, const Numbers& numbers);

/// Where the stripes of a parameter are.
struct Striping {
  std::size_t first = 0;      // index of its first stripe
  std::int64_t elements = 0;  // of a stripe, but for the last one
};

/// The stripes of parameters in order, of `stripe_bytes` each or of one row. `count`: of all.
std::vector<Striping> stripe(const std::vector<at::Tensor>& parameters, std::uint64_t stripe_bytes,
                             std::uint64_t& count);

/// A group of parameters when the optimizer is made.
struct NewGroup {
  std::vector<at::Tensor> parameters;
  double lr = 0;
  Numbers numbers;
};

/// One process's view of an optimizer. Its handles own it.
struct Parameter {
  at::Tensor tensor;  // whose gradient is taken
  at::Tensor flat;    // its elements as they lie
  std::uint32_t group = 0;
  Striping striping;
  std::array<at::Tensor, kMostKept> kept;  // flat, too
};

}  // namespace shoal::hogwild

namespace shoal::hogwild {

struct Optimizer::State {
  /// A new optimizer. Throws std::invalid_argument.
  State(Rule rule, const std::vector<NewGroup>& groups, const SharingOptions& sharing);
  /// One that came from another process. Throws DecodeError.
  State(Hold own_block, Rule rule, const std::vector<at::Tensor>& all, const std::vector<std::uint32_t>& group_of,
        const std::vector<at::Tensor>& kept);

  Rule rule() const { return Rule(layout->rule); }
  const Numbers& numbers(const Parameter& parameter) const { return layout->group(parameter.group).numbers; }
  double lr(const Parameter& parameter) const {
    return layout->group(parameter.group).lr.load(std::memory_order_relaxed);  // relaxed: one number
  }
  bool has_bound() const { return layout->staleness_bound != HogwildLayout::kUnbounded; }

  Hold block;
  HogwildLayout* layout;
  std::vector<Parameter> parameters;
  std::vector<at::Tensor> tensors;  // of the parameters
  bool came = false;                // from another process, and nothing is attached yet
  Participants participants;

 private:
  void set_parameters(const std::vector<at::Tensor>& all, const std::vector<std::uint32_t>& group_of);
};

}  // namespace shoal::hogwild
