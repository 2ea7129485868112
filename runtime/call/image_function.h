// A function as it can be named in another process that runs the same program.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// Position of a function in the program or shared library that it is part of, and which one that is.
/// The build id is the linker's hash of the image's contents, so a name never resolves to other code
/// than that of the process which made it; load addresses may differ. A plain, encodable value.
struct ImageFunction {
  std::string build_id;  // empty: no function
  std::uint64_t offset = 0;
  std::string image;  // path, to load a library that is not there yet, and for messages
};

/// Any function's address; called only after a cast back to its own type.
using AnyFunction = void (*)();

/// Throws Error if the function's image has no build id.
ImageFunction name_function(AnyFunction function);

/// Loads the library if it was opened at run time. Throws Error if this process has no image of that
/// build id: it runs another build of the program.
AnyFunction find_function(const ImageFunction& name);

}  // namespace shoal
