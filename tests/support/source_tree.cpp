#include "tests/support/source_tree.h"

namespace shoal::test {

std::string in_sources(std::string_view path) { return SHOAL_SOURCES "/" + std::string(path); }

}  // namespace shoal::test
