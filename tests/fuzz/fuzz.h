// The entry of a fuzz target: libFuzzer calls it in the clang build (preset asan-clang), replay.cpp in all others.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
