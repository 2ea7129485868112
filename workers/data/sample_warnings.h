// What data sets have to say of samples that they could read all the same.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// Collects what is said by warn_of_sample() in this thread while it lives, the innermost one alone. The data loader
/// has one for each batch, in its workers and without them, and puts it into report(). RAII; nests; one thread.
class SampleWarnings {
 public:
  SampleWarnings();
  SampleWarnings(const SampleWarnings&) = delete;
  SampleWarnings& operator=(const SampleWarnings&) = delete;
  ~SampleWarnings();

  /// What was said since the last call.
  std::vector<std::string> take();

 private:
  friend void warn_of_sample(std::string text);
  SampleWarnings* const outer_;
  std::vector<std::string> texts_;
};

/// For data sets: the sample that is being read is not quite what it should be. Says it to nobody where no
/// SampleWarnings collects.
void warn_of_sample(std::string text);

}  // namespace shoal
