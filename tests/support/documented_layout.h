// The pictures of shared structures in docs/, to be compared with the structures.
#pragma once

#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

namespace shoal::test {

/// Offset and size by name.
using Fields = std::map<std::string, std::pair<std::size_t, std::size_t>>;

/// The table of a page below the heading that starts so.
inline Fields documented(const std::string& page, const std::string& heading) {
  std::ifstream file(in_sources("docs/" + page));
  REQUIRE(file.good());
  Fields fields;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line.substr(3).starts_with(heading);
    if (!inside || !line.starts_with("| ") || line.starts_with("| offset")) continue;
    std::istringstream cells(line);
    std::string bar, name;
    std::size_t offset = 0, bytes = 0;
    cells >> bar >> offset >> bar >> bytes >> bar >> name;
    fields[name] = {offset, bytes};
  }
  return fields;
}

}  // namespace shoal::test

/// A member of a structure, for a list of Fields.
#define FIELD(type, member)                                   \
  {                                                           \
    #member, { offsetof(type, member), sizeof(type::member) } \
  }
