#include "train_fashion_mnist/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

namespace {

std::string sizes_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

std::vector<std::string> names_of(const Network& network) {
  std::vector<std::string> names;
  for (const auto& item : network->named_parameters()) names.push_back(item.key());
  return names;
}

}  // namespace

void save_checkpoint(const std::string& file, const Checkpoint& checkpoint, const Network& network) {
  const std::string beside = fmt::format("{}.{}.part", file, ::getpid());
  const auto names = names_of(network);
  try {
    torch::serialize::OutputArchive archive;
    archive.write("model", c10::IValue("fashion-mnist-convnet"));
    archive.write("epoch", c10::IValue(checkpoint.epoch));
    for (std::size_t i = 0; i < names.size(); ++i) {
      archive.write("parameter." + names[i], checkpoint.parameters.at(i), true);
      if (i < checkpoint.momentum.size()) archive.write("momentum." + names[i], checkpoint.momentum[i], true);
    }
    archive.save_to(beside);
    std::filesystem::rename(beside, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
}

std::optional<Checkpoint> load_checkpoint(const std::string& file, const Network& network) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(file);
  } catch (const c10::Error&) {
    throw CheckpointError(fmt::format("{} is not a checkpoint", file));
  }
  c10::IValue model, epoch;
  if (!archive.try_read("model", model) || !model.isString() || model.toStringRef() != "fashion-mnist-convnet" ||
      !archive.try_read("epoch", epoch) || !epoch.isInt())
    throw CheckpointError(fmt::format("{} is a checkpoint of another program", file));
  Checkpoint checkpoint{epoch.toInt(), {}, {}};
  for (const auto& item : network->named_parameters()) {
    at::Tensor parameter, momentum;
    if (!archive.try_read("parameter." + item.key(), parameter, true))
      throw CheckpointError(
          fmt::format("{} is a checkpoint of another model: it has no parameter {}", file, item.key()));
    if (parameter.sizes() != item.value().sizes())
      throw CheckpointError(fmt::format("{} is a checkpoint of another model: its {} has sizes {}, this one's {}", file,
                                        item.key(), sizes_text(parameter.sizes()), sizes_text(item.value().sizes())));
    checkpoint.parameters.push_back(parameter);
    if (archive.try_read("momentum." + item.key(), momentum, true)) checkpoint.momentum.push_back(momentum);
  }
  return checkpoint;
}
