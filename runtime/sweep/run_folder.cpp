#include <shoal/internal/runtime/sweep/run_folder.h>

#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/runtime/config_error.h>

#include <fstream>
#include <iterator>
#include <utility>

namespace shoal::detail {

namespace fs = std::filesystem;

std::string text_in(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state) {
  SweepOutcome outcome{state};
  config::Node node = config::parse_toml(text, file);
  for (config::Entry& entry : node.entries) {
    if (entry.key == "seconds") outcome.seconds = entry.value.real;
    if (entry.key == "result") outcome.result = std::move(entry.value);
  }
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

void prepare_run_folder(const fs::path& folder, const SweepRun& run) {
  fs::create_directories(folder);
  fs::remove(folder / "result.toml");
  fs::remove(folder / "error.txt");
  config::write_file(folder / "config.toml", run.config);
}

}  // namespace shoal::detail
