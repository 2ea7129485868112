// The functions of a pool's tasks, named in few bytes.
#pragma once

#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/ipc/codec.h>

#include <cstdint>
#include <unordered_map>

namespace shoal::detail {

/// Writes names. One of the program's own functions is its offset; one of a library is written whole. Looks each
/// function up once. Belongs to the pool, under its mutex.
class FunctionNames {
 public:
  /// `function` may be null.
  void write(Encoder& encoder, AnyFunction function);

 private:
  std::unordered_map<AnyFunction, ImageFunction> names_;
};

/// Finds in the worker what FunctionNames wrote. One thread.
class FunctionFinder {
 public:
  /// Throws DecodeError, and Error if this process has no such function.
  AnyFunction read(Decoder& decoder);

 private:
  std::unordered_map<std::uint64_t, AnyFunction> own_;  // of the program
};

}  // namespace shoal::detail
