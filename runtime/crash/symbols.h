// The names of functions, looked up in the files that they come from.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

#include <string>
#include <vector>

namespace shoal {

/// One call of a stack trace.
struct StackFrame {
  std::string function;      ///< demangled; empty if the image has no name for it
  std::string image;         ///< path of the program or library; empty: none
  std::uint64_t offset = 0;  ///< of the call in the image
  std::string file;  ///< of the source, as the compiler was given it; empty if the image has no debug information
  int line = 0;      ///< 0: not known
  /// "function at file:line in image+0xoffset"
  std::string text() const;
};

/// Looks the places up in the symbol tables of their images: in the file at the image's path, or in this process's own
/// program, if the build id says that it is the same; otherwise in its separate debug file. Takes milliseconds an
/// image. Never throws for what the files contain: they may be any.
std::vector<StackFrame> symbolize(const std::vector<CodePlace>& places);

}  // namespace shoal
