#include <shoal/workers/beton/beton_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/beton_view.h>
#include <shoal/internal/workers/files/mapped_file.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace shoal {

namespace {

/// Where the file is, whatever the process's folder becomes. As given, if that folder is gone.
std::string from_root(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::absolute(path, failed);
  return failed ? path.native() : place.native();
}

}  // namespace

struct BetonFile::Opened {
  Opened(std::string file, std::string at, std::vector<BetonCustomCell> cells)
      : path(std::move(file)),
        place(std::move(at)),
        custom(std::move(cells)),
        mapping(place, ".beton file"),
        view(mapping.bytes(), path, custom) {}
  Fd open() const { return lift(Fd(::open(place.c_str(), O_RDONLY | O_CLOEXEC))); }
  std::string path, place;  // as given, for errors; the same from the root
  std::vector<BetonCustomCell> custom;
  detail::MappedFile mapping;
  detail::BetonView view;
};

BetonFile::BetonFile(const std::filesystem::path& path, std::vector<BetonCustomCell> custom)
    : opened_(std::make_shared<const Opened>(path.native(), from_root(path), std::move(custom))) {}
BetonFile::BetonFile(std::shared_ptr<const Opened> opened) : opened_(std::move(opened)) {}

const detail::BetonView& BetonFile::view() const { return opened_->view; }
const detail::FileStamp& BetonFile::stamp() const { return opened_->mapping.stamp(); }
const std::string& BetonFile::path() const { return opened_->path; }
std::int64_t BetonFile::size() const { return view().size(); }
std::span<const BetonField> BetonFile::fields() const { return view().fields(); }
std::size_t BetonFile::field(std::string_view name) const { return view().field(name); }
std::uint64_t BetonFile::page_bytes() const { return view().page_bytes(); }
std::uint64_t BetonFile::file_bytes() const { return view().file().size(); }
std::int64_t BetonFile::integer(std::int64_t row, std::size_t field) const { return view().integer(row, field); }
double BetonFile::real(std::int64_t row, std::size_t field) const { return view().real(row, field); }
std::span<const std::uint8_t> BetonFile::bytes(std::int64_t row, std::size_t field) const {
  return view().bytes(row, field);
}
std::string_view BetonFile::json(std::int64_t row, std::size_t field) const { return view().json(row, field); }
std::span<const std::uint8_t> BetonFile::array(std::int64_t row, std::size_t field) const {
  return view().array(row, field);
}
BetonImage BetonFile::image(std::int64_t row, std::size_t field) const { return view().image(row, field); }
std::span<const std::uint8_t> BetonFile::custom(std::int64_t row, std::size_t field) const {
  return view().custom(row, field);
}
std::optional<std::uint64_t> BetonFile::page(std::int64_t row) const { return view().page(row); }
std::int64_t BetonFile::regions() const { return view().regions(); }
BetonRegion BetonFile::region(std::int64_t number) const { return view().region(number); }

std::uint64_t BetonFile::place_of(std::span<const std::uint8_t> bytes) const {
  return bytes.empty() ? 0 : std::uint64_t(bytes.data() - view().file().data());
}

void BetonFile::prefetch_page(std::uint64_t page) const {
  if (page >= file_bytes() / page_bytes()) return;
  const Fd file = opened_->open();
  // Of one call Linux reads no more than the device's read-ahead, or its largest transfer: hence pieces. pread() would copy
  // the bytes for nobody, and read beyond the page, as a file's reader goes on.
  constexpr std::uint64_t kPiece = 128U << 10U;
  const std::uint64_t begin = page * page_bytes(), end = begin + page_bytes();
  for (std::uint64_t at = begin; file && at < end; at += kPiece)
    ::readahead(file.get(), off64_t(at), std::size_t(std::min(end - at, kPiece)));
}
void BetonFile::drop_page(std::uint64_t page) const {
  if (page < file_bytes() / page_bytes()) opened_->mapping.advise(page * page_bytes(), page_bytes(), MADV_DONTNEED);
}
void BetonFile::forget_page(std::uint64_t page) const {
  if (page >= file_bytes() / page_bytes()) return;
  drop_page(page);  // the kernel keeps what any process has mapped in
  const Fd file = opened_->open();
  if (file) ::posix_fadvise(file.get(), off_t(page * page_bytes()), off_t(page_bytes()), POSIX_FADV_DONTNEED);
}

const std::vector<BetonCustomCell>& BetonFile::custom_cells() const { return opened_->custom; }

void Codec<BetonFile>::encode(Encoder& encoder, const BetonFile& file) {
  shoal::encode(encoder, file.path());
  shoal::encode(encoder, file.opened_->place);
  shoal::encode(encoder, file.stamp().bytes);
  shoal::encode(encoder, file.stamp().modified);
  shoal::encode(encoder, file.custom_cells());
}

BetonFile Codec<BetonFile>::decode(Decoder& decoder) {
  const auto path = shoal::decode<std::string>(decoder), place = shoal::decode<std::string>(decoder);
  detail::FileStamp stamp;
  stamp.bytes = shoal::decode<std::uint64_t>(decoder);
  stamp.modified = shoal::decode<std::int64_t>(decoder);
  const BetonFile file(
      std::make_shared<const BetonFile::Opened>(path, place, shoal::decode<std::vector<BetonCustomCell>>(decoder)));
  if (file.stamp().bytes != stamp.bytes)
    throw DatasetError(fmt::format(
        "{}: has {} bytes, {} where this message comes from; was it replaced, or is another file in this place here?",
        path, file.stamp().bytes, stamp.bytes));
  if (file.stamp() != stamp)
    throw DatasetError(
        fmt::format("{}: was changed since it was opened where this message comes from; open it again there", path));
  return file;
}

}  // namespace shoal
