#include <shoal/workers/images/encode.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/images/formats/file_bytes.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace shoal {
namespace {

// Removed, unless it was renamed.
class FileBeside {
 public:
  explicit FileBeside(const std::filesystem::path& path) : path_(path) {
    // Process and number: others write into the same folder. The dot and the ending: no data set lists it. A name that
    // is there is another's: of a process with this number in another container or on another host, or killed there.
    static std::atomic<unsigned> number{0};
    do {
      beside_ = path.parent_path() / fmt::format(".shoal.{}.{}.part", ::getpid(), number.fetch_add(1));
      file_ = lift(Fd(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
    } while (!file_ && errno == EEXIST);
    if (!file_) refuse_file(path_, "written", errno);
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  ~FileBeside() {
    if (!renamed_) ::unlink(beside_.c_str());
  }

  void write(std::span<const std::uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse_file(path_, "written", errno);
      bytes = bytes.subspan(std::size_t(written));
    }
  }
  void take_place() {
    SHOAL_KILL_POINT("images.write.whole");
    if (::rename(beside_.c_str(), path_.c_str()) != 0) refuse_file(path_, "renamed to that", errno);
    renamed_ = true;
  }

 private:
  const std::filesystem::path& path_;
  std::filesystem::path beside_;
  Fd file_;
  bool renamed_ = false;
};

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  FileBeside file(path);
  file.write(bytes);
  file.take_place();
}

void write_jpeg(const at::Tensor& image, const std::filesystem::path& path, int quality) {
  replace_file(path, encode_jpeg(image, quality));
}

void write_png(const at::Tensor& image, const std::filesystem::path& path, int compression_level) {
  replace_file(path, encode_png(image, compression_level));
}

}  // namespace shoal
