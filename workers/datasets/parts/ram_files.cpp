#include <shoal/internal/workers/datasets/parts/ram_files.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/text/quantity_text.h>
#include <shoal/internal/workers/images/formats/file_bytes.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/progress.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

namespace fs = std::filesystem;

// Names of a session are short: the paths themselves are not.
std::string key_of(std::span<const fs::path> paths) {
  std::uint64_t hash = schema_hash("shoal::RamFiles", std::uint64_t(paths.size()));
  for (const fs::path& path : paths) hash = schema_hash(path.native(), hash);
  return fmt::format("shoal/ram_files/{:016x}", hash);
}

constinit std::mutex one_thread;

[[gnu::init_priority(101)]] const AtFork at_fork({
    // Not waited for: who has it may be reading for minutes. A reader's claim is no fork's.
    .in_child = []() noexcept { new (&one_thread) std::mutex; },
});

at::Tensor allocate(std::uint64_t total, std::size_t files) {
  try {
    return empty_shared({std::int64_t(total)}, at::TensorOptions(at::kByte));
  } catch (const OutOfSharedMemory& error) {
    const std::size_t needed = error.in_use() + error.asked();
    throw OutOfSharedMemory(error.asked(), error.in_use(), error.allowed(),
                            fmt::format("a limit: {} files with {} are to be kept in memory, {} more than there is; "
                                        "nothing was read",
                                        with_thousands(std::int64_t(files)), long_bytes(total),
                                        long_bytes(needed > error.allowed() ? needed - error.allowed() : 0)));
  }
}

RamFiles read_files(std::span<const fs::path> paths, const RamOptions& options) {
  std::vector<std::string> names;
  names.reserve(paths.size());
  RamFiles files;
  files.ends = empty_shared({std::int64_t(paths.size())}, at::TensorOptions(at::kLong));
  auto* ends = files.ends.mutable_data_ptr<std::int64_t>();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(paths[i], error);
    if (error) throw DatasetError(fmt::format("{}: can't be looked at: {}", paths[i].native(), error.message()));
    ends[i] = std::int64_t(total += size);
    names.push_back(paths[i].native());
  }
  files.names = StringTable::of(names);
  share_memory_(files.names.bytes);
  share_memory_(files.names.ends);
  files.bytes = allocate(total, paths.size());

  std::optional<ProgressBar> bar;
  if (options.progress) {
    bar.emplace(ProgressBarOptions{.total = std::int64_t(total),
                                   .label = fmt::format("{}: {} files, {}", options.label,
                                                        with_thousands(std::int64_t(paths.size())), long_bytes(total)),
                                   .unit = "MiB",
                                   .per_unit = std::int64_t(1) << 20U,
                                   .fd = options.fd});
  }
  auto* bytes = files.bytes.mutable_data_ptr<std::uint8_t>();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    SHOAL_KILL_POINT("ram_files.read.some");
    read_file_into(paths[i], {bytes + done, std::size_t(ends[i] - done)});
    done = ends[i];
    if (bar) bar->update(done);
  }
  if (bar) bar->finish();
  return files;
}

std::optional<RamFiles> find(const std::string& key, std::chrono::nanoseconds timeout) {
  try {
    return Session::current().lookup<RamFiles>(key, timeout);
  } catch (const NotPublished&) {
    return std::nullopt;
  }
}

// This process's claim to be the one that reads. When it dies, its claim goes with it.
class Claim {
 public:
  explicit Claim(std::string key) : key_(std::move(key)) {
    try {
      Session::current().publish(key_, std::uint64_t{1});
      owned_ = true;
    } catch (const std::invalid_argument&) {  // another living process has it
    }
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (owned_) Session::current().unpublish(key_);
  }
  explicit operator bool() const { return owned_; }

 private:
  std::string key_;
  bool owned_ = false;
};

}  // namespace

at::Tensor RamFiles::get(std::int64_t index) const {
  check_dataset_index(index, size());
  const std::int64_t start = index == 0 ? 0 : ends.const_data_ptr<std::int64_t>()[index - 1];
  return bytes.narrow(0, start, ends.const_data_ptr<std::int64_t>()[index] - start);
}

std::span<const std::uint8_t> RamFiles::file(std::int64_t index) const {
  const auto* all = ends.const_data_ptr<std::int64_t>();
  const std::int64_t start = index == 0 ? 0 : all[index - 1];
  return {bytes.const_data_ptr<std::uint8_t>() + start, std::size_t(all[index] - start)};
}

RamFiles load_ram_files(std::span<const fs::path> paths, const RamOptions& options) {
  if (paths.empty()) throw std::invalid_argument("load_ram_files: no files; there has to be at least one");
  // A claim is a process's: its threads exclude each other here.
  const std::lock_guard lock(one_thread);
  const std::string key = key_of(paths);
  std::chrono::milliseconds patience{0};
  while (true) {
    if (auto found = find(key, patience)) return *found;
    const Claim claim(key + "/reader");
    if (!claim) {
      // Somebody reads. If it dies or fails, nothing will come: time to try and claim again.
      patience = std::chrono::milliseconds(100);
      continue;
    }
    // The one before may have been done between the look and the claim.
    if (auto found = find(key, {})) return *found;
    RamFiles files = read_files(paths, options);
    Session::current().publish(key, files);
    SHOAL_KILL_POINT("ram_files.publish.done");
    return files;
  }
}

bool forget_ram_files(std::span<const fs::path> paths) { return Session::current().unpublish(key_of(paths)); }

std::vector<fs::path> files_below(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw DatasetError(fmt::format("{}: no such folder", folder.native()));
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  if (files.empty()) throw DatasetError(fmt::format("{}: no files in this folder", folder.native()));
  std::ranges::sort(files);
  return files;
}

}  // namespace shoal
