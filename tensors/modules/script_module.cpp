#include <shoal/tensors/script_module.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/tensors/modules/script_archive.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/codec.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace shoal {

struct SharedScriptModule::Parts {
  explicit Parts(ScriptArchive taken_apart) : archive(std::move(taken_apart)) {}

  const ScriptArchive archive;
  std::mutex making;
  std::optional<torch::jit::Module> made;  // is set under both

  /// Those that this process has, by the block of their code, which nothing else can be in as long as they are here.
  /// Never destroyed: what it keeps may outlive the session's statics.
  struct Known {
    std::unordered_map<std::uint64_t, std::weak_ptr<Parts>> by_block;
    std::shared_ptr<Parts> last_received;
  };
  static constinit inline std::mutex mutex;
  /// Under the mutex.
  static Known& known() {
    static auto* here = new Known;
    return *here;
  }
  static void after_fork() noexcept;
  static const AtFork at_fork;
};

[[gnu::init_priority(101)]] const AtFork SharedScriptModule::Parts::at_fork({
    .before = &ForkWaitsFor<mutex>::lock,
    .in_parent = &ForkWaitsFor<mutex>::unlock,
    .in_child = &Parts::after_fork,
});

/// What another thread was making is made again here: it takes too long for a fork to wait.
void SharedScriptModule::Parts::after_fork() noexcept {
  for (auto& [block, weak] : known().by_block)
    if (const std::shared_ptr<Parts> parts = weak.lock()) new (&parts->making) std::mutex;
  ForkWaitsFor<mutex>::unlock();
}

namespace {

std::uint64_t block_of(const ScriptArchive& archive) {
  const Hold* hold = archive.archive.defined() ? shared_hold(archive.archive) : nullptr;
  if (!hold) throw DecodeError("a TorchScript module that is not in the shared heap");
  return hold->block().value;
}

}  // namespace

SharedScriptModule::SharedScriptModule(const torch::jit::Module& module, const ReadOnlyOptions& options)
    : parts_(std::make_shared<Parts>(take_apart(module, options.name, options.allow_data_ptr))) {
  std::lock_guard lock(Parts::mutex);
  auto& known = Parts::known();
  std::erase_if(known.by_block, [](const auto& entry) { return entry.second.expired(); });
  known.by_block[block_of(parts_->archive)] = parts_;
}

torch::jit::Module SharedScriptModule::module() const {
  if (!parts_) throw std::invalid_argument("a SharedScriptModule without a module: make it by load_shared()");
  std::lock_guard lock(parts_->making);
  if (!parts_->made) {
    torch::jit::Module made = put_together(parts_->archive);
    SHOAL_KILL_POINT("script_module.made");
    std::lock_guard at_once(Parts::mutex);  // so that a fork finds all of it or nothing
    parts_->made = std::move(made);
  }
  return *parts_->made;
}

c10::IValue SharedScriptModule::forward(std::vector<c10::IValue> inputs) const {
  return module().forward(std::move(inputs));
}

at::Tensor SharedScriptModule::operator()(const at::Tensor& input) const { return forward({input}).toTensor(); }

std::size_t SharedScriptModule::bytes() const {
  std::size_t sum = 0;
  if (parts_)
    for (const at::Tensor& storage : parts_->archive.storages) sum += storage.nbytes();
  return sum;
}

SharedScriptModule load_shared(const std::string& path, const ReadOnlyOptions& options) {
  auto read = [&] {
    try {
      return torch::jit::load(path);
    } catch (const std::exception& error) {
      const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
      std::string why = torch_error ? torch_error->what_without_backtrace() : error.what();
      throw Error(fmt::format("load_shared: libtorch cannot read {} as a file by torch.jit.save: {}", path,
                              why.substr(0, why.find('\n'))));
    }
  };
  return SharedScriptModule(read(), options);
}

void Codec<SharedScriptModule>::encode(Encoder& encoder, const SharedScriptModule& module) {
  shoal::encode(encoder, bool(module));
  if (!module) return;
  const ScriptArchive& archive = module.parts_->archive;
  shoal::encode(encoder, archive.archive);
  shoal::encode(encoder, archive.keys);
  shoal::encode(encoder, archive.storages);
}

SharedScriptModule Codec<SharedScriptModule>::decode(Decoder& decoder) {
  using Parts = SharedScriptModule::Parts;
  if (!shoal::decode<bool>(decoder)) return {};
  ScriptArchive archive;
  archive.archive = shoal::decode<at::Tensor>(decoder);
  archive.keys = shoal::decode<std::vector<std::string>>(decoder);
  archive.storages = shoal::decode<std::vector<at::Tensor>>(decoder);
  if (archive.keys.size() != archive.storages.size())
    throw DecodeError(fmt::format("a TorchScript module with {} names for {} storages", archive.keys.size(),
                                  archive.storages.size()));
  std::shared_ptr<Parts> replaced;  // goes when the lock is gone
  std::lock_guard lock(Parts::mutex);
  auto& known = Parts::known();
  std::erase_if(known.by_block, [](const auto& entry) { return entry.second.expired(); });
  auto& place = known.by_block[block_of(archive)];
  std::shared_ptr<Parts> parts = place.lock();
  if (!parts) {
    place = parts = std::make_shared<Parts>(std::move(archive));
    replaced = std::exchange(known.last_received, parts);
  }
  return SharedScriptModule(std::move(parts));
}

}  // namespace shoal
