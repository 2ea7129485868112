#include "tests/support/temporary_folder.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace shoal::test {

TemporaryFolder::TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "shoal-test-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "making " + path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // what a test has made unreadable stays
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace shoal::test
