// A folder for one test.
#pragma once

#include <string>

namespace shoal::test {

/// A new, empty folder, which is removed with all that is in it at the end of its owner's scope.
class TemporaryFolder {
 public:
  /// Throws std::system_error.
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace shoal::test
