#include <shoal/internal/workers/tar/rows/rows.h>

#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/internal/workers/tar/make/npy.h>
#include <shoal/internal/workers/tar/make/tar_values.h>

#include <limits>
#include <string_view>
#include <utility>

namespace shoal::detail {
namespace {

BetonRow::Value value_of(const TarSource& source, const TarPart& part) {
  const std::string_view kind = std::string_view(part.extension).substr(part.extension.rfind('.') + 1);
  std::vector<std::uint8_t> bytes(part.bytes.begin(), part.bytes.end());
  if (kind == "jpg" || kind == "jpeg" || kind == "png") return EncodedImage{bytes, name_of(source, part)};
  if (kind == "cls" || kind == "cls2" || kind == "index" || kind == "id")
    return decode_integer<std::int64_t>(source, part, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max());
  if (kind == "json") return BetonJson{{bytes.begin(), bytes.end()}};
  if (kind == "npy") return parse_npy(part.bytes, name_of(source, part));
  return bytes;
}

}  // namespace

TarRows tar_rows(TarDataset<> dataset, std::vector<TarField> fields) {
  TarRows rows{std::move(dataset), std::move(fields)};
  if (rows.fields.empty())
    for (const TarPart& part : rows.dataset.parts(0).parts) rows.fields.push_back({part.extension, {part.extension}});
  return rows;
}

BetonRow TarRows::get(std::int64_t index) const {
  const TarParts parts = dataset.parts(index);
  const std::string path = dataset.archives.path(dataset.archives.archive_of(index));
  const TarSource source{parts, path, dataset.options.extensions, dataset.options.decode,
                         dataset.archives.cut_at(index)};
  BetonRow row;
  for (const TarField& field : fields) {
    const TarPart* part = nullptr;
    for (const std::string& extension : field.extensions)
      if (part == nullptr) part = parts.find(extension);
    if (part == nullptr)
      fail_without_part(
          source, field.name,
          "shoal beton write --field image=jpg,png --field label=cls names the fields, and which files each may be");
    row.values.push_back(value_of(source, *part));
  }
  return row;
}

BetonRow BetonRows::get(std::int64_t index) const {
  BetonRow row;
  const BetonPlace place{&file, index};
  for (std::size_t f = 0; f < file.fields().size(); ++f) {
    const BetonType type = file.fields()[f].type;
    if (type == BetonType::integer) {
      row.values.emplace_back(file.integer(index, f));
    } else if (type == BetonType::real) {
      row.values.emplace_back(file.real(index, f));
    } else if (type == BetonType::json) {
      row.values.emplace_back(BetonJson{std::string(file.json(index, f))});
    } else if (type == BetonType::bytes || type == BetonType::custom) {
      const auto bytes = type == BetonType::bytes ? file.bytes(index, f) : file.custom(index, f);
      row.values.emplace_back(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
    } else if (type == BetonType::rgb_image && file.image(index, f).mode == BetonImageMode::jpg) {
      const auto bytes = file.image(index, f).bytes;
      row.values.emplace_back(EncodedImage{{bytes.begin(), bytes.end()}, file.path()});
    } else {
      at::Tensor tensor;
      decode_member(place, f, tensor);
      row.values.emplace_back(std::move(tensor));
    }
  }
  return row;
}

std::vector<std::string> BetonRows::names() const {
  std::vector<std::string> names;
  for (const BetonField& field : file.fields()) names.push_back(field.name);
  return names;
}

}  // namespace shoal::detail
