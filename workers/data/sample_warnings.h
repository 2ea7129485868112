// Warnings of data sets about samples that they could read all the same.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// Collects the texts of warn_of_sample() in this thread while it lives; if several live, only the innermost does. The
/// data loader has one for each batch, with and without workers, and puts the texts into report(). RAII; nests; one
/// thread.
class SampleWarnings {
 public:
  SampleWarnings();
  SampleWarnings(const SampleWarnings&) = delete;
  SampleWarnings& operator=(const SampleWarnings&) = delete;
  ~SampleWarnings();

  /// The texts since the last call.
  std::vector<std::string> take();

 private:
  friend void warn_of_sample(std::string text);
  SampleWarnings* const outer_;
  std::vector<std::string> texts_;
};

/// Warns that the sample which is being read is not quite what it should be. Data sets call it. Without a
/// SampleWarnings in this thread it does nothing.
void warn_of_sample(std::string text);

}  // namespace shoal
