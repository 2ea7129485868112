// An exception of a started process, whole, on its way to another one.
#pragma once

#include <shoal/runtime/failure.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace shoal {

/// An exception, those nested in it, and where it was thrown. A plain, encodable value.
struct RaisedException {
  std::vector<ExceptionSummary> chain;  // outermost first, never empty
  std::vector<CodePlace> frames;        // innermost call first; empty if nobody noted it
  std::int64_t time = 0;                // of the steady clock
};

/// Describes the exception that is being handled, and those nested in it (std::throw_with_nested), outermost first.
std::vector<ExceptionSummary> describe_current_exception();

/// Like the above, with the stack if the exception has passed traced_call(): for a process that goes on after it.
RaisedException take_current_exception();

/// Makes what the process that asked for the call throws: a ProcessRaised, as if that one call had been the process's
/// function.
std::shared_ptr<const ProcessFailed> make_failure(const ProcessIdentity& who, const RaisedException& raised);

}  // namespace shoal
