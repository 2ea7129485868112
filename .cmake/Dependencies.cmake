# What shoal is built on. ipc and runtime: Boost headers, fmt, threads. tensors and workers: libtorch as well.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(Boost 1.75 REQUIRED)           # 1.75 is the first with Boost.PFR
if(SHOAL_TENSORS)
  include(Libtorch)
  # tensors/cuda needs the toolkit's headers, not a libtorch built for CUDA.
  find_package(CUDAToolkit QUIET)
endif()
