#include <shoal/internal/workers/beton/command/file_report.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/command/values.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace shoal::command {
namespace {

constexpr std::int64_t kWidestBar = 40;

std::string quantity(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  double value = double(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string description(const BetonField& field, const FieldReport& report) {
  std::string text(name_of(field.type));
  if (field.is_array()) text += fmt::format(" {} [{}]", field.dtype.code, fmt::join(field.shape, ", "));
  if (field.type == BetonType::custom) text += fmt::format(" of {} bytes", field.cell_bytes);
  if (field.type == BetonType::rgb_image && report.raw + report.jpg > 0)
    text += fmt::format(": {} raw, {} JPEG, {} x {} to {} x {} pixels", report.raw, report.jpg, report.least_width,
                        report.least_height, report.most_width, report.most_height);
  if (field.has_region() && report.sizes.count > 0)
    text += fmt::format("; {} to {}, {} in all", quantity(report.sizes.least), quantity(report.sizes.most),
                        quantity(report.sizes.total));
  return text;
}

std::string histogram(const SizeSummary& sizes) {
  std::string text;
  const std::int64_t largest = *std::ranges::max_element(sizes.by_power);
  const auto first = std::size_t(std::bit_width(sizes.least)), last = std::size_t(std::bit_width(sizes.most));
  for (std::size_t power = first; power <= last && power < sizes.by_power.size(); ++power)
    text += fmt::format("      < {:>10}  {:>10}  {}\n", quantity(std::uint64_t{1} << power), sizes.by_power[power],
                        std::string(std::size_t((sizes.by_power[power] * kWidestBar + largest - 1) / largest), '#'));
  return text;
}

std::uint64_t bytes_of(const BetonFile& file, std::int64_t row, std::size_t f) {
  switch (file.fields()[f].type) {
    case BetonType::rgb_image:
      return file.image(row, f).bytes.size();
    case BetonType::bytes:
    case BetonType::json:
      return file.bytes(row, f).size();
    case BetonType::ndarray:
    case BetonType::tensor:
      return file.array(row, f).size();
    default:
      return file.fields()[f].cell_bytes;
  }
}

void add_picture(FieldReport& report, const BetonImage& image) {
  const bool is_first = report.raw + report.jpg == 0;
  ++(image.mode == BetonImageMode::raw ? report.raw : report.jpg);
  report.least_width = is_first ? image.width : std::min(report.least_width, image.width);
  report.least_height = is_first ? image.height : std::min(report.least_height, image.height);
  report.most_width = std::max(report.most_width, image.width);
  report.most_height = std::max(report.most_height, image.height);
}

/// Gathers faults up to a number.
class Faults {
 public:
  explicit Faults(std::size_t most) : most_(most) {}
  void add(std::string fault) {
    if (!full()) found_.push_back(std::move(fault));
  }
  bool full() const { return found_.size() >= most_; }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::size_t most_;
  std::vector<std::string> found_;
};

/// One sample: its values can be read, and all lie in one page.
void check_sample(const BetonFile& file, std::int64_t row, bool quick, Faults& faults) {
  std::set<std::uint64_t> pages;
  for (std::size_t f = 0; f < file.fields().size(); ++f) {
    const BetonField& field = file.fields()[f];
    try {
      std::span<const std::uint8_t> bytes;
      if (field.type == BetonType::rgb_image) {
        bytes = file.image(row, f).bytes;
        if (!quick) (void)pixels_of(file, row, f);
      } else if (field.type == BetonType::json) {
        bytes = file.bytes(row, f);
        if (const auto text = file.json(row, f); !is_json(text))
          faults.add(fmt::format("{}: offset {}, sample {}, field {:?}: the text is no JSON", file.path(),
                                 file.place_of(bytes), row, field.name));
      } else if (field.type == BetonType::bytes) {
        bytes = file.bytes(row, f);
      } else if (field.is_array()) {
        bytes = file.array(row, f);
      }
      if (!bytes.empty()) pages.insert(file.place_of(bytes) / file.page_bytes());
    } catch (const DatasetError& error) {
      faults.add(error.what());
    }
  }
  if (pages.size() > 1)
    faults.add(fmt::format("{}: sample {}: its values lie in {} pages; FFCV's quasi-random order gives it as often",
                           file.path(), row, pages.size()));
}

/// The allocation table: inside the data, of samples that are there, no two over one another.
void check_table(const BetonFile& file, Faults& faults) {
  std::vector<BetonRegion> regions;
  for (std::int64_t i = 0; i < file.regions() && !faults.full(); ++i) {
    const BetonRegion region = file.region(i);
    if (region.sample >= std::uint64_t(file.size()))
      faults.add(fmt::format("{}: region {}: of sample {}; there are {}", file.path(), i, region.sample, file.size()));
    if (region.bytes == 0) continue;
    if (region.place > file.file_bytes() || region.bytes > file.file_bytes() - region.place)
      faults.add(
          fmt::format("{}: region {}: {} bytes at {}, outside the file", file.path(), i, region.bytes, region.place));
    regions.push_back(region);
  }
  const std::int64_t all = file.size() * std::ranges::count_if(file.fields(), &BetonField::has_region);
  if (file.regions() < all)
    faults.add(
        fmt::format("{}: the allocation table has {} of {} regions, to the end of the file's {} bytes: it is cut "
                    "short, or was never whole; FFCV needs all of them",
                    file.path(), file.regions(), all, file.file_bytes()));
  std::ranges::sort(regions, {}, &BetonRegion::place);
  for (std::size_t i = 1; i < regions.size(); ++i)
    if (regions[i].place - regions[i - 1].place < regions[i - 1].bytes)
      faults.add(fmt::format("{}: offset {}: regions of samples {} and {} overlap", file.path(), regions[i].place,
                             regions[i - 1].sample, regions[i].sample));
}

}  // namespace

void SizeSummary::add(std::uint64_t bytes) {
  ++count;
  least = std::min(least, bytes);
  most = std::max(most, bytes);
  total += bytes;
  ++by_power[std::min(std::size_t(std::bit_width(bytes)), by_power.size() - 1)];
}

std::vector<FieldReport> report_fields(const BetonFile& file) {
  std::vector<FieldReport> reports(file.fields().size());
  for (std::int64_t row = 0; row < file.size(); ++row)
    for (std::size_t f = 0; f < reports.size(); ++f) {
      if (!file.fields()[f].has_region()) continue;
      reports[f].sizes.add(bytes_of(file, row, f));
      if (file.fields()[f].type == BetonType::rgb_image) add_picture(reports[f], file.image(row, f));
    }
  return reports;
}

std::string info_text(const BetonFile& file) {
  const std::vector<FieldReport> reports = report_fields(file);
  std::map<std::uint64_t, std::int64_t> samples_by_page;
  for (std::int64_t row = 0; row < file.size(); ++row)
    if (const auto page = file.page(row)) ++samples_by_page[*page];
  std::string text = fmt::format("{}: {} samples, {} fields, {}\n", file.path(), file.size(), file.fields().size(),
                                 quantity(file.file_bytes()));
  text += fmt::format("pages of {}: {} used, {} regions", quantity(file.page_bytes()), samples_by_page.size(),
                      file.regions());
  if (!samples_by_page.empty()) {
    std::int64_t fewest = file.size(), most = 0;
    for (const auto& [page, samples] : samples_by_page) {
      fewest = std::min(fewest, samples);
      most = std::max(most, samples);
    }
    text += fmt::format("; {} to {} samples a page", fewest, most);
  }
  text += "\nfields:\n";
  for (std::size_t f = 0; f < reports.size(); ++f)
    text += fmt::format("  {:<16}  {}\n", file.fields()[f].name, description(file.fields()[f], reports[f]));
  for (std::size_t f = 0; f < reports.size(); ++f)
    if (reports[f].sizes.count > 0 && reports[f].sizes.least != reports[f].sizes.most)
      text += fmt::format("sizes of {}, and how many values have them:\n{}", file.fields()[f].name,
                          histogram(reports[f].sizes));
  return text;
}

std::vector<std::string> find_faults(const BetonFile& file, bool quick, std::size_t most) {
  Faults faults(most);
  check_table(file, faults);
  for (std::int64_t row = 0; row < file.size() && !faults.full(); ++row) check_sample(file, row, quick, faults);
  return faults.take();
}

}  // namespace shoal::command
