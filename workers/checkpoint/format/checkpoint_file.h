// A shard's file, to read from. Without libtorch.
#pragma once

#include <shoal/internal/workers/checkpoint/format/checkpoint_layout.h>
#include <shoal/ipc/fd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shoal::detail {

/// An open file whose header and index are checked. Data are read by read(2), not mapped: a file that is cut short by
/// others meanwhile is an error and no SIGBUS. One thread.
class CheckpointFile {
 public:
  /// Throws SystemError if it cannot be opened or read, CheckpointError for damage.
  explicit CheckpointFile(std::filesystem::path path);

  /// Keeps no descriptor between reads from now on: of a step of thousands of ranks a process cannot open all.
  void rest() { file_.reset(); }

  const std::filesystem::path& path() const { return path_; }
  const CheckpointHeader& header() const { return head_.header; }
  const std::vector<CheckpointEntry>& entries() const { return head_.entries; }
  /// Null if there is none of this name.
  const CheckpointEntry* find(std::string_view name) const;

  /// Reads an entry's data, `to.size()` of which is its bytes. Throws CheckpointError if they are damaged; `to` then has
  /// any content.
  void read(const CheckpointEntry& entry, std::span<std::byte> to) const;
  /// Reads everything through a small buffer. Throws CheckpointError.
  void verify() const;

 private:
  Fd open() const;
  void read_at(int file, std::uint64_t offset, std::span<std::byte> to, std::string_view field) const;
  [[noreturn]] void fail_checksum(const CheckpointEntry& entry) const;

  std::filesystem::path path_;
  Fd file_;  // none: it rests
  CheckpointHead head_;
  std::unordered_map<std::string_view, const CheckpointEntry*> by_name_;
};

/// The run that a file says it is of, from its first bytes alone, without a checksum; nothing if it cannot be read or is
/// no checkpoint.
std::optional<std::uint64_t> run_of_checkpoint(const std::filesystem::path& path);

}  // namespace shoal::detail
