# What shoal is built on. ipc and runtime: Boost headers, fmt, threads. tensors and workers: libtorch as well.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)             # Boost's own package file
endif()
find_package(Boost 1.74 REQUIRED)           # headers of Boost.Container; 1.74 is the oldest that it was built with
find_path(HWLOC_INCLUDE_DIR hwloc.h REQUIRED)   # the header alone: runtime/cpu/topology loads the library when it is needed
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)   # headers alone: runtime/configure/parse_toml has all of it
if(SHOAL_TENSORS)
  # Last of all: the Python environment that ./dev setup makes.
  file(GLOB Libtorch_FALLBACK_DIRS ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch)
  find_package(Libtorch 2.11 REQUIRED)
  # tensors/cuda needs the toolkit's headers, not a libtorch built for CUDA.
  find_package(CUDAToolkit QUIET)
  find_package(ZLIB REQUIRED)               # gzipped data sets
  find_package(JPEG REQUIRED)               # and pictures
  find_package(PNG REQUIRED)
  include(DetectReducer)
endif()
