#include <shoal/internal/workers/train/ddp/module_parts.h>

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>
#include <unordered_set>

namespace shoal {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void refuse_unknown(const char* option, const std::vector<std::string>& names, const torch::nn::Module& module,
                    bool buffers_too) {
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const std::string& name : names)
    if (!parameters.contains(name) && !(buffers_too && buffers.contains(name)))
      throw std::invalid_argument(fmt::format("DistributedDataParallelOptions::{}: the module has no {} named {}",
                                              option, buffers_too ? "parameter or buffer" : "parameter", name));
}

/// The weights of lookups whose gradients are sparse.
std::unordered_set<const c10::TensorImpl*> sparse_weights(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> weights;
  for (const auto& part : module.modules()) {
    if (const auto* embedding = part->as<torch::nn::Embedding>(); embedding && embedding->options.sparse())
      weights.insert(embedding->weight.unsafeGetTensorImpl());
    if (const auto* bag = part->as<torch::nn::EmbeddingBag>(); bag && bag->options.sparse())
      weights.insert(bag->weight.unsafeGetTensorImpl());
  }
  return weights;
}

ModuleParts parts_of(const torch::nn::Module& module, const DistributedDataParallelOptions& options) {
  if (options.bucket_bytes <= 0 || options.first_bucket_bytes <= 0)
    throw std::invalid_argument(fmt::format("buckets of {} and {} bytes: give positive sizes", options.bucket_bytes,
                                            options.first_bucket_bytes));
  refuse_unknown("ignored", options.ignored, module, true);
  refuse_unknown("delayed", options.delayed, module, false);
  refuse_unknown("sparse", options.sparse, module, false);
  ModuleParts parts;
  const auto sparse = sparse_weights(module);
  std::unordered_map<const c10::TensorImpl*, std::string> seen;  // tied parameters are one
  for (const auto& item : module.named_parameters()) {
    if (contains(options.ignored, item.key())) continue;
    const c10::TensorImpl* impl = item.value().unsafeGetTensorImpl();
    parts.all.emplace_back(item.key(), item.value());
    if (!item.value().requires_grad()) {
      parts.uses.emplace_back("frozen");
      parts.frozen.push_back(parts.all.back());
      continue;
    }
    if (const auto [first, is_new] = seen.emplace(impl, item.key()); !is_new) {
      parts.uses.push_back("tied to " + first->second);
      continue;
    }
    const bool is_sparse = sparse.contains(impl) || contains(options.sparse, item.key());
    parts.uses.emplace_back(contains(options.delayed, item.key()) ? "trained, delayed"
                            : is_sparse                           ? "trained, with sparse gradients"
                                                                  : "trained");
    if (contains(options.delayed, item.key())) {
      if (is_sparse)
        throw std::invalid_argument(
            fmt::format("DistributedDataParallelOptions::delayed: {} has sparse gradients, and delayed ones are "
                        "reduced in one dense piece",
                        item.key()));
      parts.delayed.emplace_back(item.key(), item.value());
      continue;
    }
    parts.parameters.emplace_back(item.key(), item.value());
    parts.expect_sparse.push_back(is_sparse);
  }
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined() || contains(options.ignored, item.key())) continue;
    parts.all.emplace_back(item.key(), item.value());
    parts.uses.emplace_back();
    parts.buffers.push_back(item.value());
  }
  return parts;
}

/// Those by which ranks would call other collectives, a line each.
std::vector<std::string> lines_of_options(const DistributedDataParallelOptions& options) {
  std::vector<std::string> lines;
  constexpr const char* kBufferSyncs[] = {"broadcast_before", "broadcast_after", "average_before", "average_after"};
  const auto add = [&](const char* name, auto value) { lines.push_back(fmt::format("{} = {}", name, value)); };
  add("bucket_bytes", options.bucket_bytes);
  add("first_bucket_bytes", options.first_bucket_bytes);
  add("find_unused_parameters", options.find_unused_parameters);
  add("static_graph", options.static_graph);
  add("skip_all_reduce_unused_params", options.skip_all_reduce_unused_params);
  add("init_sync", options.init_sync);
  add("init_sync_buffers", options.init_sync_buffers);
  add("broadcast_buffers", options.broadcast_buffers);
  add("buffer_sync", kBufferSyncs[int(options.buffer_sync)]);
  return lines;
}

}  // namespace

ModuleParts parts_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                               const torch::nn::Module& module, const DistributedDataParallelOptions& options) {
  // What is refused here takes part in the comparison all the same: other ranks, with other options, would wait for it.
  ModuleParts parts;
  std::exception_ptr refusal;
  try {
    parts = parts_of(module, options);
  } catch (const std::exception& error) {
    refusal = std::current_exception();
    parts.all.emplace_back(fmt::format("nothing, since rank {} refuses it: {}", process_group->getRank(), error.what()),
                           at::Tensor());
  }
  try {
    check_same_on_all_ranks(process_group, parts.all, "module", parts.uses);
  } catch (const std::invalid_argument&) {
    if (!refusal) throw;
  }
  if (refusal) std::rethrow_exception(refusal);
  check_same_lines(process_group, lines_of_options(options), "DistributedDataParallel");
  return parts;
}

void check_what_is_trained(const ModuleParts& parts, bool may_be_missing) {
  for (const auto& [name, parameter] : parts.frozen)
    if (parameter.requires_grad())
      throw std::invalid_argument(
          fmt::format("{} requires a gradient, and did not when its DistributedDataParallel was made, which would not "
                      "reduce it: make another one after parameters are unfrozen, or name it in "
                      "DistributedDataParallelOptions::ignored",
                      name));
  const auto check_trained = [](const NamedTensorList& trained, const char* remedy) {
    for (const auto& [name, parameter] : trained)
      if (!parameter.requires_grad())
        throw std::invalid_argument(
            fmt::format("{} requires no gradient any more, and did when its DistributedDataParallel was made: {}, or "
                        "make another one after parameters are frozen",
                        name, remedy));
  };
  if (!may_be_missing) check_trained(parts.parameters, "set DistributedDataParallelOptions::find_unused_parameters");
  // These are waited for in any case.
  check_trained(parts.delayed, "leave it out of DistributedDataParallelOptions::delayed");
}

TrainedScope::TrainedScope(const NamedTensorList& parameters) {
  for (const auto& [name, parameter] : parameters)
    if (!parameter.requires_grad()) frozen_.push_back(parameter.set_requires_grad(true));
}

TrainedScope::~TrainedScope() {
  for (const at::Tensor& parameter : frozen_) parameter.set_requires_grad(false);
}

}  // namespace shoal
