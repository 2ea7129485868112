#include <shoal/internal/workers/checkpoint/parts/module_part.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/internal/workers/checkpoint/parts/tensor_entries.h>
#include <shoal/ipc/log.h>
#include <shoal/tensors/module_state.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>
#include <torch/nn/module.h>

#include <mutex>
#include <set>
#include <utility>

namespace shoal::detail {
namespace {

struct Named {
  std::string name;
  at::Tensor tensor;
  bool is_buffer;
};

/// A module's tensors, each under the first of its names.
std::vector<Named> named_tensors(const std::string& part, const torch::nn::Module& module) {
  const ModuleState state = module_state(module);
  std::vector<bool> seen(state.tensors.size());
  std::vector<Named> all;
  for (const ModuleState::Entry& entry : state.entries) {
    if (seen[entry.tensor]) continue;
    seen[entry.tensor] = true;
    all.push_back({part + "/" + entry.key, state.tensors[entry.tensor], entry.buffer});
  }
  return all;
}

void write_tensors(ShardContents& to, const std::vector<Named>& all, OnRanks on_ranks) {
  std::vector<at::Tensor> parameters;
  for (const Named& named : all)
    if (!named.is_buffer) parameters.push_back(named.tensor);
  const std::vector<bool> here = written_here(to, parameters, on_ranks);
  std::size_t index = 0;
  // Ranks' buffers differ between two forward passes: as in torch, rank 0's are the module's.
  for (const Named& named : all)
    if (named.is_buffer ? on_ranks == OnRanks::own || to.rank() == 0 : here[index++]) to.add(named.name, named.tensor);
}

CheckpointStep::Shards shards_of(OnRanks on_ranks) {
  return on_ranks == OnRanks::own ? CheckpointStep::Shards::own : CheckpointStep::Shards::all;
}

std::function<void()> prepare_tensors(const CheckpointStep& from, const std::vector<Named>& all, OnRanks on_ranks) {
  std::vector<std::pair<CheckpointStep::Found, at::Tensor>> pairs;
  for (const Named& named : all) {
    const auto found = from.at(named.name, shards_of(on_ranks));
    check_tensor(found, named.tensor.sizes(), named.tensor.scalar_type());
    if (shares_places(named.tensor))
      found.fail("this program's tensor is expanded, and nothing can be loaded into it: keep its clone() instead");
    pairs.emplace_back(found, named.tensor);
  }
  return [pairs = std::move(pairs)] {
    for (const auto& [found, tensor] : pairs) read_tensor(found, tensor);
  };
}

class ModulePart final : public CheckpointPart {
 public:
  ModulePart(const std::string& name, torch::nn::Module& module, OnRanks on_ranks)
      : CheckpointPart(name), module_(module), on_ranks_(on_ranks) {}

  void write(ShardContents& to) const override { write_tensors(to, named_tensors(name(), module_), on_ranks_); }
  std::function<void()> prepare(const CheckpointStep& from) const override {
    const std::vector<Named> all = named_tensors(name(), module_);
    std::set<std::string> own;
    for (const Named& named : all) own.insert(named.name);
    for (const std::string& there : from.names_below(name() + "/", shards_of(on_ranks_)))
      if (!own.contains(there)) from.at(there, shards_of(on_ranks_)).fail("this program's module does not have it");
    return prepare_tensors(from, all, on_ranks_);
  }

 private:
  torch::nn::Module& module_;
  OnRanks on_ranks_;
};

class TensorPart final : public CheckpointPart {
 public:
  TensorPart(const std::string& name, at::Tensor& tensor, OnRanks on_ranks)
      : CheckpointPart(name), tensor_(tensor), on_ranks_(on_ranks) {}

  void write(ShardContents& to) const override {
    if (on_ranks_ == OnRanks::own || to.rank() == 0) to.add(name(), tensor_);
  }
  std::function<void()> prepare(const CheckpointStep& from) const override {
    return prepare_tensors(from, {{name(), tensor_, false}}, on_ranks_);
  }

 private:
  at::Tensor& tensor_;
  OnRanks on_ranks_;
};

class TensorsPart final : public CheckpointPart {
 public:
  TensorsPart(const std::string& name, std::vector<std::pair<std::string, at::Tensor>> tensors) : CheckpointPart(name) {
    for (auto& [key, tensor] : tensors) all_.push_back({fmt::format("{}/{}", name, key), std::move(tensor), false});
  }

  void write(ShardContents& to) const override { write_tensors(to, all_, OnRanks::equal); }
  std::function<void()> prepare(const CheckpointStep& from) const override {
    return prepare_tensors(from, all_, OnRanks::equal);
  }

 private:
  std::vector<Named> all_;
};

class RandomPart final : public CheckpointPart {
 public:
  using CheckpointPart::CheckpointPart;

  void write(ShardContents& to) const override {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    at::Tensor state;
    {
      const std::lock_guard lock(generator.mutex());
      state = generator.get_state();
    }
    to.add(name(), state);
  }
  std::function<void()> prepare(const CheckpointStep& from) const override {
    const auto found = from.at(name());
    if (!from.has_as_many_ranks()) {
      log_info("the random state of the checkpoint's step {} is left: another number of ranks wrote it", from.step());
      return [] {};
    }
    at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
    check_tensor(found, state.sizes(), state.scalar_type());
    read_tensor(found, state);
    try {
      at::detail::createCPUGenerator().set_state(state);
    } catch (const c10::Error& error) {
      found.fail(fmt::format("it is no state of a generator: {}", error.what_without_backtrace()));
    }
    return [state] {
      at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    };
  }
};

}  // namespace

std::shared_ptr<CheckpointPart> make_module_part(const std::string& name, torch::nn::Module& module, OnRanks on_ranks) {
  return std::make_shared<ModulePart>(name, module, on_ranks);
}
std::shared_ptr<CheckpointPart> make_tensor_part(const std::string& name, at::Tensor& tensor, OnRanks on_ranks) {
  return std::make_shared<TensorPart>(name, tensor, on_ranks);
}
std::shared_ptr<CheckpointPart> make_tensors_part(const std::string& name,
                                                  std::vector<std::pair<std::string, at::Tensor>> tensors) {
  return std::make_shared<TensorsPart>(name, std::move(tensors));
}
std::shared_ptr<CheckpointPart> make_random_part(const std::string& name) { return std::make_shared<RandomPart>(name); }

}  // namespace shoal::detail
