#include <shoal/internal/runtime/sweep/run_folder.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/config_error.h>
#include <sys/file.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace shoal::detail {

namespace fs = std::filesystem;

namespace {

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError(fmt::format("making the folder {}", folder.native()), error.value());
}

}  // namespace

Fd take_sweep_folder(const fs::path& folder) {
  make_folder(folder);
  Fd taken = lift(Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!taken) throw SystemError(fmt::format("opening the folder {}", folder.native()), errno);
  // Where a file system has no locks, nobody is kept out.
  if (::flock(taken.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(fmt::format(
        "the folder {}: another sweep is at work there; wait for it, or take another --sweep-folder", folder.native()));
  return taken;
}

std::string text_in(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string last_lines_in(const fs::path& file, std::size_t most_bytes) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? std::streamoff(stream.tellg()) : 0;
  const bool is_cut = size > std::streamoff(most_bytes);
  stream.seekg(is_cut ? size - std::streamoff(most_bytes) : 0);
  std::string text(is_cut ? most_bytes : std::size_t(size), '\0');
  stream.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(std::max<std::streamsize>(0, stream.gcount())));
  if (is_cut) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state) {
  SweepOutcome outcome{state};
  config::Node node = config::parse_toml(text, file);
  bool has_seconds = false, has_result = false;
  for (config::Entry& entry : node.entries) {
    if (entry.key == "seconds") outcome.seconds = entry.value.real, has_seconds = true;
    if (entry.key == "result") outcome.result = std::move(entry.value), has_result = true;
  }
  if (!has_seconds || !has_result) throw ConfigError(fmt::format("{}: seconds or [result] is missing", file));
  return outcome;
}

bool is_kept(const fs::path& folder, const SweepRun& run, SweepOutcome& outcome) {
  if (!fs::exists(folder / "result.toml") || text_in(folder / "config.toml") != run.config) return false;
  try {
    outcome = outcome_of(text_in(folder / "result.toml"), "result.toml", SweepOutcome::State::kept);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

SweepOutcome failed_by(const std::exception& error) {
  SweepOutcome outcome{SweepOutcome::State::failed};
  outcome.error = describe(error);
  std::ranges::replace(outcome.error, '\n', ' ');
  return outcome;
}

void prepare_run_folder(const fs::path& folder, const SweepRun& run) {
  make_folder(folder);
  for (const char* name : {"result.toml", "error.txt"}) {
    std::error_code error;
    fs::remove(folder / name, error);
    if (error) throw SystemError(fmt::format("removing {}", (folder / name).native()), error.value());
  }
  config::write_file(folder / "config.toml", run.config);
}

}  // namespace shoal::detail
