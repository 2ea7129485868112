#include <shoal/workers/checkpoint/export_state_dict.h>

#include <ATen/core/Dict.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/checkpoint/write/atomic_file.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/module_state.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shoal {
namespace {

/// Like torch::jit::pickle_save(), but without its tags of types, which torch.load refuses with weights_only.
std::string archive_of(const c10::IValue& value) {
  std::string pickle, bytes;
  torch::jit::Pickler pickler([&](const char* data, std::size_t size) { pickle.append(data, size); }, nullptr, nullptr,
                              nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  torch::jit::writeArchiveAndTensors("data", pickle.data(), pickle.size(), pickler.tensorData(), writer);
  writer.writeEndOfFile();
  return bytes;
}

}  // namespace

void export_state_dict(const std::filesystem::path& path, const torch::nn::Module& module) {
  const ModuleState state = module_state(module);
  c10::Dict<std::string, at::Tensor> dict;
  // Ties stay: tensors of one storage are written once.
  for (const ModuleState::Entry& entry : state.entries) dict.insert(entry.key, state.tensors[entry.tensor]);
  std::string bytes;
  try {
    bytes = archive_of(dict);
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("libtorch cannot write the state_dict for {}: {}", path.native(), error.what_without_backtrace()));
  }
  detail::AtomicFile file(path);
  file.write(std::as_bytes(std::span(bytes)));
  file.commit();
}

IncompatibleKeys import_state_dict(const std::filesystem::path& path, torch::nn::Module& module,
                                   const ImportOptions& options) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw SystemError(fmt::format("opening the state_dict {}", path.native()), errno);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto fail = [&](const std::string& field, const std::string& what) {
    throw CheckpointError(path, CheckpointError::kNoOffset, field, what);
  };
  std::map<std::string, at::Tensor> there;
  try {
    const c10::IValue value = torch::jit::pickle_load(bytes);
    if (!value.isGenericDict()) fail("file", "it is no dict of names and tensors");
    for (const auto& item : value.toGenericDict()) {
      if (!item.key().isString() || !item.value().isTensor()) fail("file", "it is no dict of names and tensors");
      there.emplace(item.key().toStringRef(), item.value().toTensor());
    }
  } catch (const c10::Error& error) {
    fail(
        "file",
        fmt::format(
            "libtorch cannot read it as a dict of names and tensors, which torch.save(dict(module.state_dict()), path) "
            "writes: {}",
            error.what_without_backtrace()));
  }
  const ModuleState state = module_state(module);
  IncompatibleKeys apart;
  std::set<std::string> own_names;
  for (const ModuleState::Entry& entry : state.entries) {
    own_names.insert(entry.key);
    const at::Tensor& own = state.tensors[entry.tensor];
    const auto found = there.find(entry.key);
    if (found == there.end()) {
      if (options.strict) fail(entry.key, "the module has it, the file does not");
      apart.missing_keys.push_back(entry.key);
      continue;
    }
    const at::Tensor& given = found->second;
    if (given.sizes() != own.sizes())
      fail(entry.key, fmt::format("it has the shape [{}] there, and [{}] in the module", fmt::join(given.sizes(), ", "),
                                  fmt::join(own.sizes(), ", ")));
    if (given.layout() != c10::kStrided || given.is_quantized())
      fail(entry.key, fmt::format("it is a {} tensor of {}s there: only strided ones of plain types are taken",
                                  c10::str(given.layout()), c10::toString(given.scalar_type())));
    if (given.scalar_type() != own.scalar_type() && !options.cast)
      fail(entry.key,
           fmt::format("its elements are {}s there, and {}s in the module: ImportOptions::cast converts them",
                       c10::toString(given.scalar_type()), c10::toString(own.scalar_type())));
    if (!c10::canCast(given.scalar_type(), own.scalar_type()))
      fail(entry.key, fmt::format("its elements are {}s there, which lose what they are as {}s",
                                  c10::toString(given.scalar_type()), c10::toString(own.scalar_type())));
  }
  for (const auto& [name, tensor] : there) {
    if (own_names.contains(name)) continue;
    if (options.strict) fail(name, "the file has it, the module does not");
    apart.unexpected_keys.push_back(name);
  }
  if (!own_names.empty() && apart.missing_keys.size() == state.entries.size())
    fail("file", fmt::format("none of its names is one of the module's: it has {}, the module has {}",
                             there.empty() ? "none" : there.begin()->first, *own_names.begin()));
  std::ranges::sort(apart.missing_keys);
  const at::NoGradGuard no_grad;
  for (const ModuleState::Entry& entry : state.entries)
    if (const auto found = there.find(entry.key); found != there.end())
      state.tensors[entry.tensor].copy_(found->second);
  return apart;
}

}  // namespace shoal
