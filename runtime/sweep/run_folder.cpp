#include <shoal/internal/runtime/sweep/run_folder.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/config_error.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

/// What a result is the result of.
std::string settings_line(const SweepRun& run) { return fmt::format("settings = \"{:016x}\"\n", sum_of(run.config)); }

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

std::string last_lines_in(const Fd& file, std::size_t most_bytes) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw SystemError("looking at a run's log", errno);
  const auto size = std::uint64_t(status.st_size);
  const std::uint64_t first = size > most_bytes ? size - most_bytes : 0;
  std::string text(std::size_t(size - first), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t part = ::pread(file.get(), text.data() + got, text.size() - got, off_t(first + got));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw SystemError("reading a run's log", errno);
    if (part == 0) break;
    got += std::size_t(part);
  }
  text.resize(got);
  if (first > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state) {
  using Kind = config::Node::Kind;
  SweepOutcome outcome{state};
  config::Node node = config::parse_toml(text, file);
  bool has_seconds = false, has_result = false;
  for (config::Entry& entry : node.entries) {
    if (entry.key == "seconds" && entry.value.kind == Kind::real)
      outcome.seconds = entry.value.real, has_seconds = true;
    if (entry.key == "result" && entry.value.kind == Kind::table)
      outcome.result = std::move(entry.value), has_result = true;
  }
  if (!has_seconds || !has_result) throw ConfigError(fmt::format("{}: seconds or [result] is missing", file));
  return outcome;
}

void write_result(const fs::path& folder, const SweepRun& run, const std::string& text) {
  config::write_file(folder / "result.toml", fmt::format("{}{}", settings_line(run), text));
}

bool is_kept(const fs::path& folder, const SweepRun& run, SweepOutcome& outcome) {
  try {
    std::ifstream stream(folder / "result.toml", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (!text.starts_with(settings_line(run))) return false;
    outcome = outcome_of(text, "result.toml", SweepOutcome::State::kept);
    return true;
  } catch (const std::exception&) {  // also of a folder in its place, or a disk that cannot be read
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
