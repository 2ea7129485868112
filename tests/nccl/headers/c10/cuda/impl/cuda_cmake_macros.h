// Made by libtorch's own build for CUDA; wheels for CPUs are without it.
#pragma once

#define C10_CUDA_BUILD_SHARED_LIBS
