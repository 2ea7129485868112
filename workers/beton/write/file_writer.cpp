#include <shoal/internal/workers/beton/write/file_writer.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace shoal::detail {
namespace {

/// Where the pointer of a field's cell is.
std::size_t pointer_in(const BetonField& field) {
  return field.cell_offset + (field.type == BetonType::rgb_image ? 5 : 0);
}

}  // namespace

BetonFileWriter::BetonFileWriter(const std::filesystem::path& path, std::vector<BetonField> fields,
                                 std::uint64_t page_bytes, std::int64_t samples)
    : path_(path),
      fields_(std::move(fields)),
      page_bytes_(page_bytes),
      samples_(samples),
      record_bytes_(lay_out_record(fields_)) {
  std::error_code unknown;  // then opening and renaming say what is wrong
  if (std::filesystem::is_directory(path, unknown))
    throw DatasetError(fmt::format("{}: can't be written: it is a directory; name a file in it", path.native()));
  // As pictures do it (workers/images/formats/encode.cpp): no data set lists such a name, and no other process has it.
  static std::atomic<unsigned> number{0};
  do {
    beside_ = path.parent_path() / fmt::format(".shoal.{}.{}.part", ::getpid(), number.fetch_add(1));
    file_ = lift(Fd(::open(beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
  } while (!file_ && errno == EEXIST);
  if (!file_) fail("written", errno);
  const std::uint64_t meta = kBetonHeaderBytes + kBetonDescriptorBytes * fields_.size();
  const std::uint64_t meta_end = meta + std::uint64_t(samples) * record_bytes_;
  data_ = (meta_end + page_bytes - 1) / page_bytes * page_bytes;
  records_.reserve(std::size_t(meta_end - meta));
}

BetonFileWriter::~BetonFileWriter() {
  if (!renamed_ && file_) ::unlink(beside_.c_str());
}

void BetonFileWriter::fail(const char* what, int error) const {
  throw DatasetError(fmt::format("{}: can't be {}: {}", path_.native(), what, std::strerror(error)));
}

void BetonFileWriter::write_at(std::uint64_t place, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const std::size_t most = std::min<std::size_t>(bytes.size(), 1U << 30U);
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), most, off_t(place));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written", errno);
    bytes = bytes.subspan(std::size_t(written));
    place += std::uint64_t(written);
  }
}

void BetonFileWriter::begin_page() {
  if (page_is_open_) write_page();
  page_.resize(page_bytes_);
  page_is_open_ = true;
  used_ = 0;
}

// What is not used reads as zeros, as FFCV writes them, and takes no room: the file goes on behind each page.
void BetonFileWriter::write_page() {
  write_at(data_ + pages_ * page_bytes_, std::span(page_).first(used_));
  ++pages_;
}

/// False: the page is full. What was placed stays there, and the sample is to be placed anew.
bool BetonFileWriter::place_regions(std::span<const std::span<const std::uint8_t>> regions,
                                    std::vector<Placed>& placed) {
  placed.clear();
  for (const auto& region : regions) {
    const std::size_t taken = std::max<std::size_t>(1, region.size());
    if (!page_is_open_ || taken > page_bytes_ - used_) {
      const bool anew = page_is_open_ && !placed.empty();
      begin_page();
      if (anew) return false;
    }
    if (!region.empty())
      std::memcpy(page_.data() + used_, region.data(), region.size());
    else
      page_[used_] = 0;
    placed.push_back({data_ + pages_ * page_bytes_ + used_, region.size()});
    used_ += taken;
  }
  return true;
}

void BetonFileWriter::append(EncodedSamples samples) {
  const std::uint8_t* at = samples.data();
  const std::uint8_t* end = at + samples.size();
  while (at != end) at = append_sample(at, end);
}

const std::uint8_t* BetonFileWriter::append_sample(const std::uint8_t* at, const std::uint8_t* end) {
  if (row_ == samples_) throw std::logic_error("BetonFileWriter: more samples than the file was begun for");
  const std::size_t record = records_.size();
  records_.insert(records_.end(), at, at + record_bytes_);
  at += record_bytes_;
  regions_.clear();
  std::uint64_t together = 0;
  for (const BetonField& field : fields_) {
    if (!field.has_region()) continue;
    const std::uint64_t bytes = load64(at);
    at += 8;
    if (bytes > std::uint64_t(end - at)) throw std::logic_error("BetonFileWriter: a region longer than its message");
    regions_.emplace_back(at, std::size_t(bytes));
    at += bytes;
    together += std::max<std::uint64_t>(1, bytes);
  }
  if (together > page_bytes_)
    throw LargerThanPage(
        fmt::format("it takes {} bytes, a page has {}; give larger pages, a smaller max_resolution or JPEGs", together,
                    page_bytes_));
  if (!place_regions(regions_, placed_)) place_regions(regions_, placed_);
  std::size_t number = 0;
  for (const BetonField& field : fields_) {
    if (!field.has_region()) continue;
    const Placed& region = placed_[number++];
    store64(records_.data() + record + pointer_in(field), region.place);
    table_.resize(table_.size() + kBetonRegionBytes);
    std::uint8_t* entry = table_.data() + table_.size() - kBetonRegionBytes;
    store64(entry, std::uint64_t(row_));
    store64(entry + 8, region.place);
    store64(entry + 16, region.bytes);
    bytes_ += region.bytes;
  }
  ++row_;
  return at;
}

void BetonFileWriter::finish() {
  if (row_ != samples_) throw std::logic_error(fmt::format("BetonFileWriter: {} samples came of {}", row_, samples_));
  if (page_is_open_) write_page();
  const std::uint64_t meta = kBetonHeaderBytes + kBetonDescriptorBytes * fields_.size();
  const std::uint64_t table = pages_ > 0 ? data_ + pages_ * page_bytes_ : meta + records_.size();
  std::vector<std::uint8_t> beginning(meta);
  for (std::size_t i = 0; i < fields_.size(); ++i)
    store_descriptor(beginning.data() + kBetonHeaderBytes + i * kBetonDescriptorBytes, fields_[i]);
  write_at(table, table_);
  write_at(meta, records_);
  const BetonHeader header{kBetonVersion, std::uint16_t(fields_.size()), std::uint32_t(page_bytes_),
                           std::uint64_t(samples_), table};
  store_header(beginning.data(), header);
  write_at(0, beginning);
  // On disk before it has its name: a machine that stops between the two leaves what was there, never a half file.
  if (::fsync(file_.get()) != 0) fail("written", errno);
  SHOAL_KILL_POINT("beton.write.whole");
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("renamed to that", errno);
  renamed_ = true;
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const Fd directory = lift(Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (directory) ::fsync(directory.get());  // a file system without it keeps the file as well
}

}  // namespace shoal::detail
