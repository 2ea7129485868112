// Finds the source line of an instruction, in a program's debug information.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

struct SourceLine {
  std::string file;
  int line = 0;  // 0: not known
};

/// The sections of debug information with lines, as they lie in a file; empty: not there.
struct LineSections {
  std::string_view line;          // .debug_line
  std::string_view line_strings;  // .debug_line_str
  std::string_view strings;       // .debug_str
};

/// Finds a line for each address (as the linker counts) by running the line programs of DWARF 2 to 5 ("6.2 Line Number
/// Information"). One pass over all of them: milliseconds for each megabyte. Every position is checked, since the bytes
/// may be any. If something is in a form that no compiler writes there, the line is not known.
std::vector<SourceLine> find_source_lines(const LineSections& sections, const std::vector<std::uint64_t>& addresses);

}  // namespace shoal
