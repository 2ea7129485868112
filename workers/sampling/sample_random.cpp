#include <shoal/workers/data/sample_random.h>

namespace shoal {
namespace {

thread_local SampleKey current;

}  // namespace

EpochScope::EpochScope(std::uint64_t seed, std::uint64_t epoch) : before_(current) { current = {seed, epoch, 0}; }

EpochScope::~EpochScope() { current = before_; }

SampleKey sample_key(std::int64_t index) { return {current.seed, current.epoch, std::uint64_t(index)}; }

}  // namespace shoal
