// shoal-beton-write: what `shoal beton write` becomes. It has libtorch, for the workers and the pictures.
#include <fmt/format.h>
#include <shoal/internal/runtime/command/command_errors.h>
#include <shoal/internal/runtime/command/help.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/internal/workers/tar/rows/rows.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/datasets/encoded_folder.h>
#include <shoal/workers/tar/tar_writer.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::command {
namespace {

struct Options {
  std::vector<std::string> paths;   // the last one is what is written
  std::vector<std::string> fields;  // "NAME=EXTENSION,EXTENSION"
  std::string mode = "jpg";
  BetonImageOptions images = {};
  BetonWriterOptions writer = {.num_workers = 1};
  TarWriterOptions tar = {.extensions = {{"image", ""}, {"label", "cls"}}};
  std::uint64_t shard_mib = 0;
  std::int64_t page_mib = 8;
  bool reencode = false, quiet = false;
};

BetonWriteMode mode_of(const std::string& name) {
  const std::map<std::string, BetonWriteMode> modes = {{"raw", BetonWriteMode::raw},
                                                       {"jpg", BetonWriteMode::jpg},
                                                       {"smart", BetonWriteMode::smart},
                                                       {"proportion", BetonWriteMode::proportion}};
  const auto found = modes.find(name);
  if (found == modes.end())
    throw std::invalid_argument(fmt::format("--mode is '{}': give raw, jpg, smart or proportion", name));
  return found->second;
}

/// "image=jpg,png". Throws std::invalid_argument.
detail::TarField field_of(const std::string& text) {
  const auto equals = text.find('=');
  detail::TarField field{text.substr(0, equals), {}};
  std::string_view left = equals == std::string::npos ? "" : std::string_view(text).substr(equals + 1);
  for (bool is_last = false; !is_last;) {
    const auto comma = left.find(',');
    is_last = comma == std::string_view::npos;
    field.extensions.emplace_back(left.substr(0, comma));
    left.remove_prefix(is_last ? left.size() : comma + 1);
    if (field.name.empty() || field.extensions.back().empty() || field.extensions.back().starts_with('.'))
      throw std::invalid_argument(
          fmt::format("--field is '{}': give NAME=EXTENSION or NAME=EXTENSION,EXTENSION, as image=jpg,png", text));
  }
  return field;
}

/// What the fields of rows are.
struct Fields {
  std::vector<std::string> names;
  /// Those that are arrays in the source. They stay arrays whatever their shape: uint8 [3, height, width] would become
  /// pictures.
  std::map<std::string, BetonType> arrays;
  std::map<std::string, std::string> extensions;  // of their files in tar archives
};

Fields fields_of(const detail::TarRows& rows) {
  Fields fields;
  const BetonRow first = rows.get(0);
  for (std::size_t i = 0; i < rows.fields.size(); ++i) {
    const auto& [name, extensions] = rows.fields[i];
    fields.names.push_back(name);
    const auto* array = std::get_if<at::Tensor>(&first.values[i]);
    const bool is_array = array != nullptr && array->dim() > 0;
    if (is_array) fields.arrays[name] = BetonType::tensor;
    // A file keeps its extension; where a field may be several, their kind is behind its name.
    if (extensions.size() == 1)
      fields.extensions[name] = extensions.front();
    else if (is_array)
      fields.extensions[name] = name + ".npy";
  }
  return fields;
}

Fields fields_of(const detail::BetonRows& rows) {
  Fields fields{rows.names(), {}, {}};
  for (const BetonField& field : rows.file.fields())
    if (field.is_array() && !field.shape.empty()) {
      fields.arrays[field.name] = field.type;
      fields.extensions[field.name] = field.name + ".npy";
    }
  return fields;
}

/// A data set that ends the writing when the command is asked to stop. A plain aggregate, so it crosses to workers. These are
/// asked to stop when this process is (PoolCore::tell_of_stop).
template <class D>
struct UntilStopped {
  D dataset;

  auto size() const { return dataset.size(); }
  auto get(std::int64_t index) const {
    if (stop_requests() > 0) throw DatasetError("the command was asked to stop");
    return dataset.get(index);
  }
};

template <class D>
void copy(D dataset, const Fields& fields, const std::string& target, Options& options) {
  // Ctrl-C and SIGTERM end this process when it is gone: behind the writer, which has removed what has no name yet.
  const HeldStop held;
  UntilStopped<D> source{std::move(dataset)};
  options.writer.names = options.tar.names = fields.names;
  options.tar.num_workers = options.writer.num_workers;
  options.tar.chunk_size = options.writer.chunk_size;
  if (target.ends_with(".tar")) {
    for (const auto& [name, extension] : fields.extensions) options.tar.extensions[name] = extension;
    TarWriter(target, options.tar).write(std::move(source));
  } else {
    for (const auto& [name, type] : fields.arrays) options.writer.fields[name].type = type;
    BetonWriter(target, options.writer).write(std::move(source));
  }
}

/// Throws std::invalid_argument, which names the option, unless its value `is_good`.
template <class Value>
void check(bool is_good, const char* option, const Value& value, const char* remedy) {
  if (!is_good) throw std::invalid_argument(fmt::format("{} is {}: give {}", option, value, remedy));
}

void check_values(const Options& options) {
  const BetonImageOptions& images = options.images;
  check(images.compress_probability >= 0 && images.compress_probability <= 1, "--probability",
        images.compress_probability, "0 to 1");
  check(images.max_resolution >= 0, "--max-resolution", images.max_resolution, "at least 0");
  check(images.jpeg_quality >= 1 && images.jpeg_quality <= 100, "--quality", images.jpeg_quality, "1 to 100");
  check(options.writer.num_workers >= 0, "--workers", options.writer.num_workers, "at least 0");
  check(options.writer.chunk_size >= 1, "--chunk-size", options.writer.chunk_size, "at least 1");
  check(options.page_mib >= 2 && options.page_mib <= 2048 && std::has_single_bit(std::uint64_t(options.page_mib)),
        "--page-size", options.page_mib, "a power of two from 2 to 2048");
  check(options.tar.shard_samples >= 0, "--shard-samples", options.tar.shard_samples, "at least 0");
  check(options.shard_mib >> 44U == 0, "--shard-size", options.shard_mib, "less than 17592186044416");
}

int write(Options& options) {
  options.images.write_mode = mode_of(options.mode);
  options.images.verbatim = !options.reencode;
  check_values(options);
  options.writer.images = options.images;
  options.writer.page_bytes = std::uint64_t(options.page_mib) << 20U;
  options.writer.progress = !options.quiet;
  options.tar.shard_bytes = options.shard_mib << 20U;
  const std::string target = options.paths.back();
  options.paths.pop_back();
  const std::string& source = options.paths.front();
  if (source.ends_with(".tar")) {
    std::vector<detail::TarField> fields;
    fields.reserve(options.fields.size());
    for (const std::string& field : options.fields) fields.push_back(field_of(field));
    for (const std::string& pattern : options.paths)
      if (!pattern.ends_with(".tar"))
        throw std::invalid_argument(fmt::format(
            "'{}' is given among tar archives: only these can be several, with names that end in .tar", pattern));
    std::error_code unknown;
    if (target.ends_with(".tar") && !options.tar.replace && std::filesystem::exists(target, unknown))
      throw std::invalid_argument(
          fmt::format("'{}' is there already, and would be replaced by what the other archives have: name a new file "
                      "last, or give --replace",
                      target));
    std::vector<std::filesystem::path> archives;
    for (const std::string& pattern : options.paths)
      for (auto& archive : tar_archives(pattern)) archives.push_back(std::move(archive));
    detail::TarRows rows = detail::tar_rows(tar_dataset(archives), std::move(fields));
    const Fields its = fields_of(rows);
    copy(std::move(rows), its, target, options);
    return 0;
  }
  if (options.paths.size() > 1)
    throw std::invalid_argument(fmt::format("'{}' and others: only tar archives can be several", source));
  std::error_code unknown;  // then reading it says what is wrong
  if (source.ends_with(".beton")) {
    detail::BetonRows rows{BetonFile(source)};
    const Fields its = fields_of(rows);
    copy(std::move(rows), its, target, options);
  } else if (std::filesystem::is_regular_file(source, unknown)) {
    std::array<char, 8> first{};
    const auto count = std::size_t(std::ifstream(source, std::ios::binary).read(first.data(), first.size()).gcount());
    try {
      detail::refuse_compressed({reinterpret_cast<const std::uint8_t*>(first.data()), count}, source);
    } catch (const DatasetError& error) {
      throw std::invalid_argument(error.what());
    }
    throw std::invalid_argument(
        fmt::format("'{}' is a file whose name ends neither in .beton nor in .tar: give it the name that says what it "
                    "is",
                    source));
  } else {
    copy(encoded_folder(source), {}, target, options);
  }
  return 0;
}

/// An option that would change nothing is a mistake, and so is a name that does not say what is to be written.
void check_use(const CLI::App& app, const std::string& source, const std::string& target) {
  const bool is_tar = target.ends_with(".tar");
  if (!is_tar && !target.ends_with(".beton"))
    throw std::invalid_argument(
        fmt::format("'{}' cannot be written: name a .beton file, or archives .tar; these are not compressed, since "
                    "nothing in a compressed one is found by its place",
                    target));
  if (target.find_first_of("*?{") != std::string::npos)
    throw std::invalid_argument(
        fmt::format("'{}' is a pattern, which names what is read: write several archives as NAME-%06d.tar", target));
  const std::vector<const char*> of_tars = {"--shard-samples", "--shard-size", "--replace"},
                                 of_betons = {"--mode",    "--smart-threshold", "--probability", "--max-resolution",
                                              "--quality", "--re-encode",       "--page-size",   "--seed"};
  for (const char* name : is_tar ? of_betons : of_tars)
    if (app.count(name) > 0)
      throw std::invalid_argument(
          fmt::format("{} is given for '{}': it is of {}", name, target,
                      is_tar ? ".beton files; archives have pictures as their source has them" : "tar archives"));
  if (app.count("--field") > 0 && !source.ends_with(".tar"))
    throw std::invalid_argument(fmt::format("--field is given for '{}': it is of tar archives that are read", source));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Writes samples as a .beton file, or as tar archives if the last name ends in .tar. They come from a folder of "
      "pictures, one folder in it for each class (image and label), from a .beton file, or from tar archives, whose "
      "files' extensions are the fields.",
      "shoal beton write");
  app.formatter(std::make_shared<Help>());
  app.add_option("FROM... FILE", options.paths,
                 "FROM: pictures FOLDER/CLASS/NAME.jpg or .png, a .beton file, or archives NAME.tar, train-*.tar, "
                 "train-{000..146}.tar. FILE: the .beton file, or NAME.tar, or train-%06d.tar with limits")
      ->required()
      ->expected(2, 1'000'000);
  app.add_option("--field", options.fields,
                 "of tar archives that are read: a field, and which of a sample's files it is, the first that is "
                 "there; image=jpg,png. Once for each field (the first sample's files, by their extensions)")
      ->type_name("NAME=EXTENSION,...")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--mode", options.mode,
                 "which pictures of a .beton file are JPEGs: raw, jpg, smart or proportion (jpg). JPEGs stay the bytes "
                 "that they are if they need not be made smaller; others are encoded, and lose by it")
      ->type_name("MODE");
  app.add_option("--smart-threshold", options.images.smart_threshold, "with smart: those of more raw bytes (0: none)")
      ->type_name("BYTES");
  app.add_option("--probability", options.images.compress_probability, "with proportion: each with this one (0.5)")
      ->type_name("P");
  app.add_option("--max-resolution", options.images.max_resolution,
                 "makes the longer side at most this long (0: as it is)")
      ->type_name("PIXELS");
  app.add_option("--quality", options.images.jpeg_quality, "of the JPEGs that are made, 1 to 100 (90)")->type_name("Q");
  app.add_flag("--re-encode", options.reencode, "decodes and encodes JPEGs too that could be stored as they are");
  app.add_option("--workers", options.writer.num_workers, "processes that read and encode; the file is the same (1)")
      ->type_name("N");
  app.add_option("--chunk-size", options.writer.chunk_size, "samples that one encodes at a time (100)")->type_name("N");
  app.add_option("--page-size", options.page_mib,
                 "of a .beton file: a power of two from 2 to 2048 (8); a small file is a page or two long")
      ->type_name("MIB");
  app.add_option("--seed", options.writer.seed, "of proportion (0)")->type_name("N");
  app.add_option("--shard-samples", options.tar.shard_samples,
                 "of tar archives: at most so many samples in each (0: any)")
      ->type_name("N");
  app.add_option("--shard-size", options.shard_mib, "of tar archives: at most so many MiB each (0: any)")
      ->type_name("MIB");
  app.add_flag("--replace", options.tar.replace,
               "of tar archives with numbers: these take the place of an earlier run's, of all numbers, when they are "
               "whole; without it those are refused");
  app.add_flag("--quiet", options.quiet, "shows no progress");
  app.footer(
      "Exit codes:\n"
      "  0    the file was written\n"
      "  1    a picture or the file cannot be read or written; there is no file\n"
      "  2    wrong usage: an unknown option, no file named\n"
      "  4    an option has a bad value");
  try {
    app.parse(argc, argv);
    check_use(app, options.paths.front(), options.paths.back());
    return write(options);
  } catch (...) {
    return end_by_exception(app, "shoal: beton write");
  }
}

}  // namespace
}  // namespace shoal::command

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  return shoal::command::run(argc, argv);
}
