// shoal-beton-write: what `shoal beton write` becomes. It has libtorch, for the workers and the pictures.
#include <fmt/format.h>
#include <shoal/internal/runtime/command/command_errors.h>
#include <shoal/internal/runtime/command/help.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/encoded_folder.h>

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace shoal::command {
namespace {

struct Options {
  std::string folder, path, mode = "jpg";
  BetonImageOptions images = {};
  BetonWriterOptions writer = {.num_workers = 1};
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

int write(Options& options) {
  options.images.write_mode = mode_of(options.mode);
  options.images.verbatim = !options.reencode;
  options.writer.images = options.images;
  if (options.page_mib < 2 || options.page_mib > 2048)
    throw std::invalid_argument(fmt::format("--page-size is {}: give 2 to 2048, a power of two", options.page_mib));
  options.writer.page_bytes = std::uint64_t(options.page_mib) << 20U;
  options.writer.progress = !options.quiet;
  BetonWriter(options.path, options.writer).write(encoded_folder(options.folder));
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Writes a folder of pictures, one folder in it for each class, as a .beton file with the fields image and label.",
      "shoal beton write");
  app.formatter(std::make_shared<Help>());
  app.add_option("FOLDER", options.folder, "the pictures: FOLDER/CLASS/NAME.jpg or .png")->required();
  app.add_option("FILE", options.path, "the .beton file")->required();
  app.add_option("--mode", options.mode, "which pictures are JPEGs: raw, jpg, smart or proportion (jpg)")
      ->type_name("MODE");
  app.add_option("--smart-threshold", options.images.smart_threshold, "with smart: those of more raw bytes (0: none)")
      ->type_name("BYTES");
  app.add_option("--probability", options.images.compress_probability, "with proportion: each with this one (0.5)")
      ->type_name("P");
  app.add_option("--max-resolution", options.images.max_resolution,
                 "makes the longer side at most this long (0: as it is)")
      ->type_name("PIXELS");
  app.add_option("--quality", options.images.jpeg_quality, "of the JPEGs, 1 to 100 (90)")->type_name("Q");
  app.add_flag("--re-encode", options.reencode, "decodes JPEGs too that could be stored as they are");
  app.add_option("--workers", options.writer.num_workers, "processes that read and encode; the file is the same (1)")
      ->type_name("N");
  app.add_option("--chunk-size", options.writer.chunk_size, "samples that one encodes at a time (100)")->type_name("N");
  app.add_option("--page-size", options.page_mib, "a power of two from 2 to 2048 (8)")->type_name("MIB");
  app.add_option("--seed", options.writer.seed, "of proportion (0)")->type_name("N");
  app.add_flag("--quiet", options.quiet, "shows no progress");
  app.footer(
      "Exit codes:\n"
      "  0    the file was written\n"
      "  1    a picture or the file cannot be read or written; there is no file\n"
      "  2    wrong usage: an unknown option, no file named\n"
      "  4    an option has a bad value");
  try {
    app.parse(argc, argv);
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
