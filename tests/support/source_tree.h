// The project's sources, for tests that read its pages, its test vectors, or the code itself.
#pragma once

#include <string>
#include <string_view>

namespace shoal::test {

/// A file or folder of the project; `path` counts from its top. Not by __FILE__: with ccache that is a relative path.
std::string in_sources(std::string_view path);

}  // namespace shoal::test
