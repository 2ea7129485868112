// The exceptions for checkpoints that are not whole, do not fit, or were not written.
#pragma once

#include <shoal/ipc/error.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace shoal {

/// A checkpoint's file is damaged, or has not what the program asks of it. The message names file, place and field.
class CheckpointError : public Error {
 public:
  /// For a fault that lies at no one place of the file.
  static constexpr std::uint64_t kNoOffset = ~std::uint64_t(0);

  /// `offset`: the byte of the file, or kNoOffset; `field`: what is there, or an entry's name.
  CheckpointError(const std::filesystem::path& file, std::uint64_t offset, const std::string& field,
                  const std::string& what);
  const std::filesystem::path& file() const noexcept { return file_; }  ///< the file at fault
  std::uint64_t offset() const noexcept { return offset_; }             ///< the byte in it, or kNoOffset
  const std::string& field() const noexcept { return field_; }          ///< what is there

 private:
  std::filesystem::path file_;
  std::uint64_t offset_;
  std::string field_;
};

/// A checkpoint that was begun by save_async() was not written: the file system refused it, or its writer died. Nothing
/// of it is left under a checkpoint's name. The message says why.
class CheckpointNotSaved : public Error {
 public:
  /// `why`: the failure's text.
  CheckpointNotSaved(std::int64_t step, const std::string& why);
  std::int64_t step() const noexcept { return step_; }  ///< as given to save_async()

 private:
  std::int64_t step_;
};

}  // namespace shoal
