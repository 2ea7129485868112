#include <shoal/internal/ipc/read_only/read_only.h>

#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>
#include <unordered_set>

namespace shoal {
namespace {

/// "tensor 'weights' [1000, 64] float"
std::string label_of(const at::Tensor& tensor, const std::string& name) {
  std::string type = c10::toString(tensor.scalar_type());
  std::ranges::transform(type, type.begin(), [](unsigned char letter) { return char(std::tolower(letter)); });
  std::string text = "tensor ";
  if (!name.empty()) text += fmt::format("'{}' ", name);
  return text + fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "), type);
}

/// Nobody but this storage has the block: no message, no other process, and no other storage of this one.
bool is_held_alone(const Hold& hold) {
  Session& session = Session::current();
  const std::uint32_t mine = session.self().word();
  int holds = 0, own = 0;
  session.heap().memory().for_each_hold(hold.block(), [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
    // acquire: whoever sees its own word only sees what others did before they gave up theirs.
    const std::uint32_t holder = word.load(std::memory_order_acquire);
    holds += holder != 0;
    own += holder == mine;
    return true;
  });
  return holds == 1 && own == 1;
}

void publish(const ReadOnlyOptions& options, const std::string& name, const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (is_read_only_storage(storage)) return;
  const std::string label = label_of(tensor, name);
  if (const Hold* hold = shared_hold(tensor); hold && !is_held_alone(*hold))
    throw std::invalid_argument(fmt::format(
        "read_only: others have the {} already, and would go on writing to what they have: publish a tensor "
        "before it is sent",
        label));
  const std::size_t bytes = storage.nbytes();
  // Asked for as something to write to: a storage that was to be copied on writing is so now.
  const void* source = bytes != 0 ? storage.mutable_data() : nullptr;
  Hold block = ReadOnlyView::allocate(bytes, label, options.allow_data_ptr ? kReadOnlyAllowsDataPtr : 0);
  if (bytes != 0) std::memcpy(block.data(), source, bytes);
  replace_by_read_only(storage, std::move(block));
}

bool is_recurrent(const torch::nn::Module& module) {
  return module.as<torch::nn::LSTM>() || module.as<torch::nn::GRU>() || module.as<torch::nn::RNN>();
}

/// Parameters of layers whose kernels read through mutable pointers, although libtorch is otherwise free of that.
std::unordered_set<const c10::TensorImpl*> read_through_data_ptr(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> found;
  auto look_at = [&](const torch::nn::Module& layer) {
    if (!is_recurrent(layer)) return;
    for (const at::Tensor& parameter : layer.parameters()) found.insert(parameter.unsafeGetTensorImpl());
  };
  look_at(module);
  for (const auto& layer : module.modules(/*include_self=*/false)) look_at(*layer);
  return found;
}

}  // namespace

at::Tensor& read_only(const ReadOnlyOptions& options, at::Tensor& tensor) {
  if (!tensor.defined()) throw std::invalid_argument("read_only: the tensor is undefined");
  if (!tensor.device().is_cpu())
    throw std::invalid_argument(
        fmt::format("read_only: the tensor is on {}: only CPU tensors lie in the shared heap; "
                    "use tensor.cpu() first",
                    tensor.device().str()));
  if (tensor._is_zerotensor())
    throw std::invalid_argument(
        "read_only: the tensor is a ZeroTensor, which has no memory; use torch::zeros_like(tensor)");
  for (const auto& [part, with_storage] : storage_parts(tensor, "read_only")) {
    const char* dot = options.name.empty() || *part == '\0' ? "" : ".";
    ReadOnlyOptions of_part = options;
    // libtorch's kernels for these read through mutable pointers.
    of_part.allow_data_ptr |= tensor.layout() != at::kStrided || tensor.is_quantized();
    publish(of_part, options.name + dot + part, with_storage);
  }
  return tensor;
}

void read_only(const ReadOnlyOptions& options, torch::nn::Module& module) {
  const auto exceptions = read_through_data_ptr(module);
  auto publish_all = [&](const torch::OrderedDict<std::string, at::Tensor>& tensors) {
    for (const auto& entry : tensors) {
      at::Tensor tensor = entry.value();
      if (!tensor.defined()) continue;
      read_only({.name = options.name.empty() ? entry.key() : options.name + "." + entry.key(),
                 .allow_data_ptr = options.allow_data_ptr || exceptions.contains(tensor.unsafeGetTensorImpl())},
                tensor);
    }
  };
  publish_all(module.named_parameters());
  publish_all(module.named_buffers());
}

bool is_read_only(const at::Tensor& tensor) {
  if (!is_shared(tensor)) return false;
  const auto parts = storage_parts(tensor, "is_read_only");
  return std::ranges::all_of(
      parts, [](const auto& part) { return is_read_only_storage(*part.second.storage().unsafeGetStorageImpl()); });
}

}  // namespace shoal
