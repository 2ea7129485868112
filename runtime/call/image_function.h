// A function's name in all processes that run the same program.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// A function's offset in the program or shared library that contains it, and that image's build id. The build id is
/// the linker's hash of the image's contents, so a name never leads to other code than that of the process which made
/// it; load addresses may differ. A plain, encodable value.
struct ImageFunction {
  std::string build_id;  // empty: no function
  std::uint64_t offset = 0;
  std::string image;  // path, to load a library that is not there yet, and for messages
};

/// Any function's address; cast it back to its own type before a call.
using AnyFunction = void (*)();

/// Throws Error if the function's image has no build id.
ImageFunction name_function(AnyFunction function);

/// Finds the function; loads its library if that was opened at run time. Throws Error if this process has no image of
/// that build id: it runs another build of the program.
AnyFunction find_function(const ImageFunction& name);

}  // namespace shoal
