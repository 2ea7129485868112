#include <shoal/internal/workers/train/optim/option_text.h>

#include <ATen/core/ivalue.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <shoal/ipc/log.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <sstream>
#include <typeinfo>
#include <utility>

namespace shoal {
namespace {

std::vector<std::string> lines_of(const torch::optim::OptimizerOptions& options, std::size_t group) {
  try {
    torch::serialize::OutputArchive written;
    options.serialize(written);
    std::stringstream stream;
    written.save_to(stream);
    torch::serialize::InputArchive read;
    read.load_from(stream);
    std::vector<std::string> names = read.keys(), lines;
    std::ranges::sort(names);
    for (const std::string& name : names) {
      c10::IValue value;
      // A class of the user's may nest an archive: it is an object, whose text is its address, another one on each rank.
      if (read.try_read(name, value) && !value.isObject())
        lines.push_back(fmt::format("{} of group {} = {}", name, group, c10::str(value)));
    }
    return lines;
  } catch (const std::exception&) {
    return {fmt::format("options of group {}: {}", group, c10::demangle(typeid(options).name()))};
  }
}

}  // namespace

std::vector<std::string> option_lines(torch::optim::Optimizer& optimizer) {
  std::vector<std::string> all;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group)
    for (std::string& line : lines_of(optimizer.param_groups()[group].options(), group)) all.push_back(std::move(line));
  return all;
}

std::string written_options(torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive written;
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const torch::optim::OptimizerOptions& options = groups[group].options();
    try {
      torch::serialize::OutputArchive one(written.compilation_unit());
      options.serialize(one);
      std::stringstream stream;
      one.save_to(stream);
      torch::serialize::InputArchive again;
      again.load_from(stream);
      options.clone()->serialize(again);  // one that cannot be read would end the other rank's Join
      written.write(std::to_string(group), one);
    } catch (const std::exception&) {
      static std::atomic<bool> said = false;
      if (!said.exchange(true))
        log_warning(
            "options of {} have no serialize() that reads what it writes, so ranks of a Join without a batch keep "
            "their own: those must not "
            "change "
            "from step to step",
            c10::demangle(typeid(options).name()));
      return {};
    }
  }
  std::ostringstream stream;
  written.save_to(stream);
  return stream.str();
}

void read_options(torch::optim::Optimizer& optimizer, const std::string& written) {
  torch::serialize::InputArchive all;
  std::istringstream stream(written);
  all.load_from(stream);
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    torch::serialize::InputArchive one;
    all.read(std::to_string(group), one);
    optimizer.param_groups()[group].options().serialize(one);
  }
}

}  // namespace shoal
