// fmt's functions, compiled once for tensors/ and workers/, of the version in libtorch's include folder; ipc/text/fmt_once.cpp
// has the system's. .cmake/BuildSettings.cmake says why, and how all of them come into this file.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <string>

namespace {

// Templates that chrono's formatters refer to are emitted only if they are used.
[[gnu::used]] std::string hour(std::chrono::seconds time) { return fmt::format("{:%H}", time); }

}  // namespace
