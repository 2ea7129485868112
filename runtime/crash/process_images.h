// The programs and libraries that a living process has mapped, asked of the kernel.
#pragma once

#include <shoal/internal/runtime/crash/record.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal {

/// Turns addresses in a process into places in files, which symbolize() takes. A copy of what was mapped when it was
/// made. One thread.
class ProcessImages {
 public:
  /// Of a process that is gone, or another user's, nothing is known.
  explicit ProcessImages(pid_t process);

  /// The address itself where no file is mapped there, as for code that was made at run time.
  CodePlace place_of(std::uint64_t address);

 private:
  struct Image {
    std::uint64_t begin, end;  // from the first mapping of the file to the last
    std::string path;
  };
  /// What the head of a file says.
  struct Head {
    std::uint64_t first_address = 0;  // as the linker counts, of the file's first byte
    std::vector<std::uint8_t> build_id;
  };
  static Head read_head(const std::string& path);

  pid_t process_;
  std::vector<Image> images_;  // by address
  std::map<std::string, Head> heads_;
};

}  // namespace shoal
