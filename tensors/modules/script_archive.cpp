#include <shoal/internal/tensors/modules/script_archive.h>

#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/read_only.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/storage_context.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace shoal {
namespace {

using caffe2::serialize::PyTorchStreamReader;
using caffe2::serialize::PyTorchStreamWriter;

// Where libtorch's reader of modules with common storages looks for things.
constexpr const char* kCodeFolder = ".data/ts_code/code/";
constexpr std::string_view kStorageFolder = ".data/", kStorageEnding = ".storage";
constexpr const char* kModuleNumber = "0";

/// Reads from memory that outlives it.
class BytesReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesReader(std::string_view bytes) : bytes_(bytes) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t size, const char*) const override {
    if (position >= bytes_.size()) return 0;
    const std::size_t count = std::min(size, bytes_.size() - position);
    std::memcpy(to, bytes_.data() + position, count);
    return count;
  }

 private:
  std::string_view bytes_;
};

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// All tensors that the module has, in whatever attribute, each once.
std::vector<at::Tensor> tensors_of(const torch::jit::Module& module) {
  c10::IValue::HashAliasedIValues values;
  c10::IValue(module._ivalue()).getSubValues(values);
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values)
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
  return tensors;
}

std::unordered_map<const c10::TensorImpl*, std::string> names_of(const torch::jit::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& attribute : module.named_attributes(/*recurse=*/true))
    if (attribute.value.isTensor()) names.emplace(attribute.value.toTensor().unsafeGetTensorImpl(), attribute.name);
  return names;
}

/// The storage as a tensor of bytes, which shares it.
at::Tensor all_bytes(const c10::Storage& storage) {
  return at::empty({0}, at::kByte).set_(storage, 0, {std::int64_t(storage.nbytes())}, {1});
}

at::Tensor published(std::string_view bytes, const ReadOnlyOptions& options) {
  at::Tensor tensor = at::empty({std::int64_t(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return read_only(options, tensor);
}

/// Whether the code calls kernels that read through pointers to write, which read_only() knows of for modules in C++.
bool reads_through_data_ptr(std::string_view code) {
  constexpr std::array<std::string_view, 9> kCalls{"torch.lstm",     "torch.gru",   "torch.rnn_tanh",
                                                   "torch.rnn_relu", "torch.quant", "torch.fbgemm",
                                                   "ops.quantized",  "ops.mkldnn",  "ops.prepacked"};
  return std::ranges::any_of(kCalls, [&](std::string_view call) { return code.find(call) != std::string_view::npos; });
}

/// What the writer adds by itself.
bool is_of_the_format(const std::string& record) {
  return record.ends_with("version") || record.ends_with("serialization_id") || record.ends_with("byteorder");
}

}  // namespace

ScriptArchive take_apart(const torch::jit::Module& module, std::string_view name, bool allow_data_ptr) {
  const auto names = names_of(module);
  auto name_of = [&](const at::Tensor& tensor) {
    const auto found = names.find(tensor.unsafeGetTensorImpl());
    const std::string own = found == names.end() ? "constant" : found->second;
    return name.empty() ? own : fmt::format("{}.{}", name, own);
  };
  const std::vector<at::Tensor> tensors = tensors_of(module);
  for (const at::Tensor& tensor : tensors)
    if (!tensor.device().is_cpu())
      throw std::invalid_argument(
          fmt::format("a TorchScript module with '{}' on {}: only CPU tensors lie in the shared heap; use "
                      "module.to(at::kCPU), or torch::jit::load(path, at::kCPU), first",
                      name_of(tensor), tensor.device().str()));

  ScriptArchive parts;
  std::vector<std::pair<at::Tensor, ReadOnlyOptions>> to_publish;
  std::string written;
  try {
    PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
      written.append(static_cast<const char*>(bytes), size);
      return size;
    });
    torch::jit::ScriptModuleSerializer serializer(writer);
    for (const at::Tensor& tensor : tensors) {
      // Those of other layouts are written as the tensors that they consist of, and found below.
      if (!tensor.has_storage() || serializer.storage_context().hasStorage(tensor.storage())) continue;
      // A storage that the serializer knows already is not written.
      parts.keys.push_back(
          fmt::format("{}{}", serializer.storage_context().getOrAddStorage(tensor.storage()), kStorageEnding));
      to_publish.emplace_back(tensor, ReadOnlyOptions{.name = name_of(tensor), .allow_data_ptr = allow_data_ptr});
    }
    torch::jit::Module same = module;
    serializer.serialize_unified_format(same, 0);
    serializer.writeFiles(kCodeFolder);
    writer.writeEndOfFile();
  } catch (const c10::Error& error) {
    throw Error(fmt::format("libtorch cannot write this TorchScript module: {}", error.what_without_backtrace()));
  }

  // Constants of the code, and what __getstate__ made, have been written: they go to the heap as well.
  PyTorchStreamReader reader(std::make_shared<BytesReader>(written));
  std::string rest;
  std::vector<std::pair<std::string, std::string>> constants;
  {
    PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
      rest.append(static_cast<const char*>(bytes), size);
      return size;
    });
    writer.setMinVersion(reader.version());
    for (const std::string& record : reader.getAllRecords()) {
      if (is_of_the_format(record)) continue;
      const auto [data, size] = reader.getRecord(record);
      const std::string_view bytes(static_cast<const char*>(data.get()), size);
      if (record.starts_with(kStorageFolder) && record.ends_with(kStorageEnding)) {
        constants.emplace_back(record.substr(kStorageFolder.size()), bytes);
      } else {
        if (record.ends_with(".py")) allow_data_ptr |= reads_through_data_ptr(bytes);
        writer.writeRecord(record, bytes.data(), bytes.size());
      }
    }
    writer.writeEndOfFile();
  }
  for (auto& [tensor, options] : to_publish) {
    options.allow_data_ptr |= allow_data_ptr;
    read_only(options, tensor);
    parts.storages.push_back(all_bytes(tensor.storage()));
  }
  const ReadOnlyOptions of_constants{.name = name.empty() ? "constant" : fmt::format("{}.constant", name),
                                     .allow_data_ptr = allow_data_ptr};
  for (const auto& [key, bytes] : constants) {
    parts.keys.push_back(key);
    parts.storages.push_back(published(bytes, of_constants));
  }
  parts.archive = published(rest, {.name = "TorchScript"});
  return parts;
}

torch::jit::Module put_together(const ScriptArchive& parts) {
  auto storages = std::make_shared<torch::jit::DeserializationStorageContext>();
  if (parts.keys.size() != parts.storages.size()) throw Error("a TorchScript module with storages that have no name");
  for (std::size_t i = 0; i < parts.keys.size(); ++i)
    if (!storages->hasStorage(parts.keys[i])) storages->addStorage(parts.keys[i], parts.storages[i].storage());
  try {
    auto reader = std::make_shared<PyTorchStreamReader>(std::make_shared<BytesReader>(bytes_of(parts.archive)));
    return torch::jit::import_ir_module(std::make_shared<torch::jit::CompilationUnit>(), std::move(reader),
                                        std::move(storages), std::nullopt, kModuleNumber);
  } catch (const c10::Error& error) {
    throw Error(fmt::format("libtorch cannot read a TorchScript module: {}", error.what_without_backtrace()));
  }
}

}  // namespace shoal
