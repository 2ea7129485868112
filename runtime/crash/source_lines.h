// Which line of which source an instruction comes from, as a program's debug information says it.
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

/// The sections of that information that say it, as they lie in a file; empty: not there.
struct LineSections {
  std::string_view line;          // .debug_line
  std::string_view line_strings;  // .debug_line_str
  std::string_view strings;       // .debug_str
};

/// One for each address (as the linker counts), by running the line programs of DWARF 2 to 5 ("6.2 Line Number
/// Information"). One pass over all of them: milliseconds for each megabyte. Every position is checked: the bytes may
/// be any. What is in a form that no compiler writes there is not known.
std::vector<SourceLine> find_source_lines(const LineSections& sections, const std::vector<std::uint64_t>& addresses);

}  // namespace shoal
