#include <shoal/workers/data/sample_warnings.h>

#include <utility>

namespace shoal {
namespace {

thread_local SampleWarnings* current = nullptr;

}  // namespace

SampleWarnings::SampleWarnings() : outer_(std::exchange(current, this)) {}

SampleWarnings::~SampleWarnings() { current = outer_; }

std::vector<std::string> SampleWarnings::take() { return std::exchange(texts_, {}); }

void warn_of_sample(std::string text) {
  if (current != nullptr) current->texts_.push_back(std::move(text));
}

}  // namespace shoal
