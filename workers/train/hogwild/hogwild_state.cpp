#include <shoal/internal/workers/train/hogwild/hogwild_state.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/share.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace shoal::hogwild {
namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::size_t kMostStripeBytes = std::size_t(1) << 62;  // more was a number below 0

std::uint64_t in_lines(std::uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// The tensor's elements as they lie in memory, one after the other.
at::Tensor flattened(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

void check_parameter(const at::Tensor& parameter, std::size_t index) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("hogwild: parameter {} {}", index, why));
  };
  if (!parameter.defined()) refuse("is undefined");
  if (!parameter.device().is_cpu()) refuse("is not on the CPU");
  if (parameter.layout() != c10::kStrided || !parameter.is_non_overlapping_and_dense())
    refuse("has gaps in its memory or overlaps itself");
  if (parameter.is_neg()) refuse("is a lazily negated view: give its resolve_neg()");
  const auto type = parameter.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16)
    refuse(fmt::format("is of type {}: float, double, half and bfloat16 are updated", c10::toString(type)));
  if (!is_shared(parameter)) refuse("is not in shared memory: call share_memory_(module) first");
}

void check_sharing(const SharingOptions& sharing) {
  const auto check = [](bool holds, const char* what, auto value, const char* allowed) {
    if (!holds) throw std::invalid_argument(fmt::format("hogwild: {} is {}: give {}", what, value, allowed));
  };
  check(sharing.stripe_bytes > 0 && sharing.stripe_bytes <= kMostStripeBytes, "stripe_bytes", sharing.stripe_bytes,
        "1 to 2^62 bytes");
  check(sharing.staleness_bound.value_or(0) >= 0, "staleness_bound", sharing.staleness_bound.value_or(0),
        "a number of steps from 0 on, or nothing");
  check(sharing.timeout.count() >= 0, "timeout", fmt::format("{} ns", sharing.timeout.count()), "0 ns or more");
  // The comparisons are false for NaN.
  check(sharing.clip_grad_value.value_or(0) >= 0, "clip_grad_value", sharing.clip_grad_value.value_or(0), "0 or more");
  check(sharing.clip_grad_norm.value_or(0) >= 0, "clip_grad_norm", sharing.clip_grad_norm.value_or(0), "0 or more");
  check(sharing.clip_grad_norm_type > 0, "clip_grad_norm_type", sharing.clip_grad_norm_type, "a number above 0");
}

std::int64_t row_of(const at::Tensor& parameter) {
  return parameter.dim() > 1 && parameter.size(0) > 0 ? parameter.numel() / parameter.size(0) : 1;
}

std::vector<at::Tensor> in_order(const std::vector<NewGroup>& groups) {
  std::vector<at::Tensor> all;
  for (const NewGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

Hold make_block(Rule rule, const std::vector<NewGroup>& groups, const SharingOptions& sharing) {
  check_sharing(sharing);
  const std::vector<at::Tensor> all = in_order(groups);
  if (all.empty()) throw std::invalid_argument("hogwild: an optimizer of no parameters");
  for (std::size_t i = 0; i < all.size(); ++i) check_parameter(all[i], i);
  std::uint64_t stripes = 0;
  if (sharing.locking == Locking::striped) stripe(all, sharing.stripe_bytes, stripes);
  const std::uint64_t counts = in_lines(sizeof(HogwildLayout) + groups.size() * sizeof(GroupRecord));
  const std::uint64_t participants = in_lines(counts + all.size() * sizeof(std::atomic<std::int64_t>));
  const std::uint64_t places = sharing.staleness_bound ? HogwildLayout::kMostParticipants : 0;
  const std::uint64_t locks = participants + places * sizeof(ParticipantRecord);
  const std::uint64_t bytes = locks + stripes * sizeof(StripeRecord);
  Hold made = allocate_shared(bytes);
  std::memset(made.data(), 0, bytes);  // counts, free places and free locks
  auto& l = *new (made.data()) HogwildLayout{};
  l.magic = HogwildLayout::kMagic;
  l.version = HogwildLayout::kVersion;
  l.rule = std::uint32_t(rule);
  l.locking = std::uint32_t(sharing.locking);
  l.group_count = groups.size();
  l.parameter_count = all.size();
  l.stripe_count = stripes;
  l.stripe_bytes = sharing.stripe_bytes;
  l.staleness_bound = sharing.staleness_bound.value_or(HogwildLayout::kUnbounded);
  l.timeout = sharing.timeout.count();
  l.clip_grad_value = sharing.clip_grad_value.value_or(-1);
  l.clip_grad_norm = sharing.clip_grad_norm.value_or(-1);
  l.clip_grad_norm_type = sharing.clip_grad_norm_type;
  l.counts = counts;
  l.participants = participants;
  l.stripes = locks;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    l.group(i).lr.store(groups[i].lr, std::memory_order_relaxed);  // relaxed: nobody else has the block yet
    l.group(i).numbers = groups[i].numbers;
  }
  return made;
}

}  // namespace

std::array<const char*, kMostKept> names_kept(Rule rule, const Numbers& numbers) {
  switch (rule) {
    case Rule::sgd:
      return {numbers.momentum != 0 ? "momentum_buffer" : nullptr};
    case Rule::adam:
    case Rule::adamw:
      return {"exp_avg", "exp_avg_sq", numbers.amsgrad ? "max_exp_avg_sq" : nullptr};
    case Rule::adagrad:
      return {"sum"};
    case Rule::rmsprop:
      return {"square_avg", numbers.momentum != 0 ? "momentum_buffer" : nullptr,
              numbers.centered ? "grad_avg" : nullptr};
  }
  return {};
}

std::vector<Striping> stripe(const std::vector<at::Tensor>& parameters, std::uint64_t stripe_bytes,
                             std::uint64_t& count) {
  std::vector<Striping> all;
  all.reserve(parameters.size());
  count = 0;
  for (const at::Tensor& parameter : parameters) {
    const std::int64_t row = std::max<std::int64_t>(row_of(parameter), 1);
    const std::int64_t rows = std::int64_t(stripe_bytes / parameter.element_size()) / row;
    const Striping own{.first = std::size_t(count), .elements = std::max<std::int64_t>(rows, 1) * row};
    count += std::uint64_t((parameter.numel() + own.elements - 1) / own.elements);
    all.push_back(own);
  }
  return all;
}

Optimizer::State::State(Rule rule, const std::vector<NewGroup>& groups, const SharingOptions& sharing)
    : block(make_block(rule, groups, sharing)),
      layout(reinterpret_cast<HogwildLayout*>(block.data())),
      participants(*layout) {
  std::vector<std::uint32_t> group_of;
  for (std::size_t i = 0; i < groups.size(); ++i)
    group_of.insert(group_of.end(), groups[i].parameters.size(), std::uint32_t(i));
  const std::vector<at::Tensor> all = in_order(groups);
  set_parameters(all, group_of);
  for (Parameter& parameter : parameters) {
    const auto names = names_kept(rule, numbers(parameter));
    for (std::size_t place = 0; place < kMostKept; ++place)
      if (names[place]) {
        parameter.kept[place] = empty_shared({parameter.flat.numel()}, parameter.flat.options());
        parameter.kept[place].fill_(numbers(parameter).initial);
      }
  }
}

Optimizer::State::State(Hold own_block, Rule rule, const std::vector<at::Tensor>& all,
                        const std::vector<std::uint32_t>& group_of, const std::vector<at::Tensor>& kept)
    : block(std::move(own_block)),
      layout(reinterpret_cast<HogwildLayout*>(block.data())),
      came(true),
      participants(*layout) {
  const auto refuse = [](const char* why) { throw DecodeError(fmt::format("an optimizer of Hogwild: {}", why)); };
  if (block.size() < sizeof(HogwildLayout)) refuse("this block of shared memory is none");
  const HogwildLayout& l = *layout;
  if (l.magic != HogwildLayout::kMagic || l.version != HogwildLayout::kVersion) refuse("not of this version");
  if (l.rule != std::uint32_t(rule)) refuse("another one than this");
  if (l.parameter_count != all.size() || group_of.size() != all.size()) refuse("of other parameters");
  if (!std::ranges::all_of(group_of, [&](std::uint32_t group) { return group < l.group_count; }))
    refuse("a group that is not there");
  for (std::size_t i = 0; i < all.size(); ++i) check_parameter(all[i], i);
  set_parameters(all, group_of);
  std::size_t next = 0;
  for (Parameter& parameter : parameters) {
    const auto names = names_kept(rule, numbers(parameter));
    for (std::size_t place = 0; place < kMostKept; ++place) {
      if (!names[place]) continue;
      if (next == kept.size() || !kept[next].defined() || kept[next].numel() != parameter.flat.numel() ||
          kept[next].dim() != 1 || !kept[next].is_contiguous() ||
          kept[next].scalar_type() != parameter.flat.scalar_type())
        refuse("its state does not fit its parameters");
      parameter.kept[place] = kept[next++];
    }
  }
  if (next != kept.size()) refuse("its state does not fit its parameters");
}

void Optimizer::State::set_parameters(const std::vector<at::Tensor>& all, const std::vector<std::uint32_t>& group_of) {
  std::uint64_t stripes = 0;
  const auto striping = stripe(all, layout->stripe_bytes, stripes);
  for (std::size_t i = 0; i < all.size(); ++i)
    parameters.push_back(
        {.tensor = all[i], .flat = flattened(all[i]), .group = group_of[i], .striping = striping[i], .kept = {}});
  tensors = all;
}

}  // namespace shoal::hogwild
