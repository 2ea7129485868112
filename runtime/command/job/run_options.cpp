#include <shoal/internal/runtime/command/job/run_options.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace shoal::command {
namespace {

constexpr int kMostNodes = 100'000, kMostRanks = 1000;

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream input(text);
  for (std::string part; std::getline(input, part, at);) parts.push_back(part);
  return parts;
}

Streams streams(const std::string& text) {
  const auto value = number(text);
  if (!value || *value < 0 || *value > 3)
    throw std::invalid_argument(
        "give 0 (none), 1 (standard output), 2 (standard error) or 3 (both), for all ranks, or by local rank as in "
        "0:3,1:2");
  return {(*value & 1) != 0, (*value & 2) != 0};
}

}  // namespace

StreamChoice::StreamChoice(const std::string& text) {
  if (text.find(':') == std::string::npos) {
    all_ = streams(text);
    return;
  }
  for (const std::string& item : split(text, ',')) {
    const auto colon = item.find(':');
    const auto rank = number(item.substr(0, colon));
    const bool is_right = rank && *rank >= 0 && colon != std::string::npos;
    by_rank_[is_right ? *rank : 0] = streams(is_right ? item.substr(colon + 1) : "");
  }
}

Streams StreamChoice::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

NodeRange parse_nodes(const std::string& text) {
  const auto colon = text.find(':');
  const auto least = number(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : number(text.substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least || *most > kMostNodes)
    throw std::invalid_argument(
        fmt::format("give the number of hosts, or MIN:MAX with 1 <= MIN <= MAX <= {}", kMostNodes));
  return {*least, *most};
}

int count_gpus(const std::string& root, const char* visible) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/dev", error)) {
    const std::string name = entry.path().filename();
    const auto number_part = name.starts_with("nvidia") ? name.substr(6) : "";
    count += !number_part.empty() && std::ranges::all_of(number_part, [](char c) { return c >= '0' && c <= '9'; });
  }
  if (!visible) return count;
  // What CUDA does: everything from the first one on that it does not know is invisible.
  int named = 0;
  for (const std::string& device : split(visible, ',')) {
    if (device.empty() || device == "-1" || device == "NoDevFiles") break;
    ++named;
  }
  return std::min(count, named);
}

int parse_ranks(const std::string& text) {
  const int gpus = text == "gpu" || text == "auto" ? count_gpus("", std::getenv("CUDA_VISIBLE_DEVICES")) : 0;
  if (text == "gpu" && gpus == 0)
    throw std::invalid_argument("there is no NVIDIA GPU to be seen here: give a number, or cpu");
  if (gpus > 0) return gpus;
  if (text == "cpu" || text == "auto") return std::min(usable_cpus(), kMostRanks);
  const auto value = number(text);
  if (!value || *value < 1 || *value > kMostRanks)
    throw std::invalid_argument(fmt::format("give a number from 1 to {}, or cpu, gpu or auto", kMostRanks));
  return *value;
}

int parse_signal(const std::string& text) {
  const std::string name = text.starts_with("SIG") ? text.substr(3) : text;
  int found = 0;
  for (int signal = 1; signal < NSIG && found == 0; ++signal)
    if (const char* each = ::sigabbrev_np(signal); each && name == each) found = signal;
  if (found == 0 || found == SIGKILL || found == SIGSTOP || found == SIGTSTP || found == SIGCONT || found == SIGCHLD)
    throw std::invalid_argument(
        fmt::format("{} is no signal that can end a run: give names as in SIGTERM,SIGINT,SIGUSR1",
                    text.empty() ? "nothing" : text));
  return found;
}

}  // namespace shoal::command
