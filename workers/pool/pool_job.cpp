#include <shoal/internal/workers/pool/pool_job.h>

#include <exception>

namespace shoal::detail {

void Job::succeed(std::size_t task, Decoder& result) {
  try {
    decode_result(task, result);
  } catch (...) {
    return fail(task, std::current_exception());
  }
  finish_one();
}

}  // namespace shoal::detail
