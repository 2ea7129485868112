// shoal-beton: what `shoal beton info`, `verify` and `cat` become. A program of its own, since `shoal` knows nothing of
// data; without libtorch, so that it answers at once.
#include <fmt/format.h>
#include <shoal/internal/runtime/command/command_errors.h>
#include <shoal/internal/runtime/command/help.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/workers/beton/command/file_report.h>
#include <shoal/internal/workers/beton/command/tar_report.h>
#include <shoal/internal/workers/beton/command/values.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal::command {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0    all is well\n"
    "  1    the file cannot be read, or is damaged\n"
    "  2    wrong usage: an unknown option, no file named\n"
    "  4    an option has a bad value";

struct Options {
  std::vector<std::string> names;  // of files, or patterns of archives
  std::vector<std::string> custom;
  bool json = false, quick = false;
  std::int64_t first = 0, most = 20;
  std::optional<std::int64_t> count;
};

/// One .beton file, or tar archives. Throws std::invalid_argument for several of which one is no archive.
struct Files {
  explicit Files(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      for (const auto& path : tar_archives(name)) paths.push_back(path.native());
    are_tars = is_tar(paths.front());
    for (const std::string& path : paths)
      if (paths.size() > 1 && !is_tar(path))
        throw std::invalid_argument(fmt::format("'{}' and others: only tar archives can be several", path));
  }
  std::vector<std::string> paths;
  bool are_tars = false;
};

BetonFile open_file(const Options& options, const std::string& path) {
  std::vector<BetonCustomCell> cells;
  cells.reserve(options.custom.size());
  for (const std::string& text : options.custom) cells.push_back(parse_custom(text));
  BetonFile file(path, cells);
  const auto& fields = file.fields();
  for (const BetonCustomCell& cell : cells)
    if (std::ranges::none_of(fields, [&](const BetonField& field) {
          return field.name == cell.field && field.type == BetonType::custom;
        }))
      throw std::invalid_argument(
          fmt::format("--custom names {:?}, which is no custom field of '{}': shoal beton info "
                      "lists its fields",
                      cell.field, path));
  return file;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw SystemError("writing to standard output", errno);
}

/// Otherwise a full disk would be noticed behind main(), by nobody.
void flush() {
  if (std::fflush(stdout) != 0) throw SystemError("writing to standard output", errno);
}

int show_info(const Options& options) {
  const Files files(options.names);
  print(files.are_tars ? tar_info_text(files.paths) : info_text(open_file(options, files.paths.front())));
  return 0;
}

int say(const std::vector<std::string>& faults, const std::string& praise) {
  for (const std::string& fault : faults) std::fprintf(stderr, "shoal: %s\n", fault.c_str());
  if (faults.empty()) print(praise);
  return faults.empty() ? 0 : ExitCode::kFailed;
}

int verify(const Options& options) {
  if (options.most < 1) throw std::invalid_argument(fmt::format("--most is {}: give at least 1", options.most));
  const auto most = std::size_t(options.most);
  const Files files(options.names);
  if (files.are_tars) {
    std::int64_t samples = 0;
    const auto faults = find_tar_faults(files.paths, options.quick, most, samples);
    return say(faults, fmt::format("{}: {} samples: no fault\n", listed(files.paths), samples));
  }
  const BetonFile file = open_file(options, files.paths.front());
  return say(find_faults(file, options.quick, most),
             fmt::format("{}: {} samples, {} regions: no fault\n", file.path(), file.size(), file.regions()));
}

/// The number behind the last sample that is asked for. Throws std::invalid_argument.
std::int64_t end_of(const Options& options, std::int64_t samples) {
  if (options.first < 0 || options.first > samples)
    throw std::invalid_argument(fmt::format("--first is {}: the file has {} samples", options.first, samples));
  const std::int64_t left = samples - options.first, count = options.count.value_or(left);
  if (count < 0) throw std::invalid_argument(fmt::format("--count is {}: give at least 0", count));
  return options.first + std::min(left, count);
}

int cat(const Options& options) {
  const Files files(options.names);
  if (files.are_tars) {
    const std::vector<TarFile> archives(files.paths.begin(), files.paths.end());
    std::int64_t samples = 0, before = 0;
    for (const TarFile& archive : archives) samples += archive.size();
    const std::int64_t end = end_of(options, samples);
    for (const TarFile& archive : archives) {
      for (std::int64_t i = std::max(options.first, before); i < std::min(end, before + archive.size()); ++i)
        print(tar_line({.file = archive, .number = i - before, .index = i}, options.json));
      before += archive.size();
    }
    return 0;
  }
  const BetonFile file = open_file(options, files.paths.front());
  for (std::int64_t row = options.first, end = end_of(options, file.size()); row < end; ++row) {
    std::string line = options.json ? fmt::format("{{\"index\":{},\"fields\":{{", row) : fmt::format("{}", row);
    for (std::size_t f = 0; f < file.fields().size(); ++f) {
      const std::string& name = file.fields()[f].name;
      if (options.json)
        line += fmt::format("{}{}:{}", f == 0 ? "" : ",",
                            nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                            json_of(file, row, f));
      else
        line += fmt::format("  {}={}", name, json_of(file, row, f));
    }
    print(line + (options.json ? "}}\n" : "\n"));
  }
  return 0;
}

CLI::App* add(CLI::App& app, const char* name, const char* help, Options& options) {
  CLI::App* command = app.add_subcommand(name, help);
  command
      ->add_option("FILE", options.names,
                   "the .beton file, or tar archives of samples: NAME.tar, train-*.tar, train-{000..146}.tar")
      ->required();
  command->add_option("--custom", options.custom, "bytes and alignment of a custom field's cell")
      ->type_name("NAME=BYTES:ALIGNMENT")
      ->take_all()
      ->allow_extra_args(false);
  command->footer(kExitCodes);
  return command;
}

int run(int argc, char** argv) {
  CLI::App app("Looks at .beton files, and at tar archives of samples.", "shoal beton");
  app.require_subcommand(1);
  app.formatter(std::make_shared<Help>());
  app.footer(std::string("  write                               writes .beton files and tar archives: shoal "
                         "beton write --help\n\n") +
             kExitCodes);
  Options options;
  Action action;
  add(app, "info", "fields, sizes, counts, pages, and a histogram of sizes", options)->callback([&] {
    action = [&] { return show_info(options); };
  });
  CLI::App* verifying = add(app, "verify", "reads everything, and says what is wrong", options);
  verifying->add_flag("--quick", options.quick, "does not decode pictures");
  verifying->add_option("--most", options.most, "ends after so many faults (20)")->type_name("N");
  verifying->callback([&] { action = [&] { return verify(options); }; });
  CLI::App* printing = add(app, "cat", "prints the samples, a line each", options);
  printing->add_flag("--json", options.json, "each line is a JSON object");
  printing->add_option("--first", options.first, "begins at this sample (0)")->type_name("INDEX");
  printing->add_option("--count", options.count, "prints so many samples (all)")->type_name("N");
  printing->callback([&] { action = [&] { return cat(options); }; });
  try {
    app.parse(argc, argv);
    const int code = action();
    flush();
    return code;
  } catch (...) {
    return end_by_exception(app, "shoal: beton");
  }
}

}  // namespace
}  // namespace shoal::command

int main(int argc, char** argv) { return shoal::command::run(argc, argv); }
