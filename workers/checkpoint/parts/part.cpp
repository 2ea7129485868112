#include <shoal/internal/workers/checkpoint/parts/part.h>

namespace shoal::detail {

CheckpointPart::~CheckpointPart() = default;

}  // namespace shoal::detail
