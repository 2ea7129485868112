# Looks at configure time whether shoal can be compiled with c10d's NCCL backend: libtorch's CUDA half has it, and its header
# includes CUDA's and nccl.h. libtorch's wheels for CUDA require the wheels that bring nccl.h (nvidia-nccl-cu13) and CUDA's headers
# but for those in crt/, which these include; the wheel nvidia-cuda-crt has them, and so has the toolkit. NCCL_ROOT says where
# nccl.h is elsewhere. It has to be of the version that libtorch requires.
#
# Sets SHOAL_HAS_NCCL, and SHOAL_NCCL_INCLUDE_DIRS if what can be compiled only (tests/nccl) can be.

option(SHOAL_NCCL "Let CUDA tensors go through libtorch's NCCL, where it and its headers are found" ON)
set(SHOAL_HAS_NCCL OFF)
set(SHOAL_NCCL_INCLUDE_DIRS "")
if(NOT SHOAL_NCCL)
  return()
endif()

set(wheels ${Libtorch_PREFIX}/../nvidia)
find_package(CUDAToolkit QUIET)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT PATHS ${wheels}/nccl ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)
find_path(SHOAL_CUDA_RUNTIME_DIR crt/host_config.h PATHS ${wheels}/cu13/include ${wheels}/cuda_runtime/include
          ${CUDAToolkit_INCLUDE_DIRS})
set(math_dirs "")
set(math_found ON)
foreach(part cublas:cublas_v2.h cusparse:cusparse.h cusolver:cusolverDn.h)
  string(REPLACE ":" ";" part ${part})
  list(GET part 0 wheel)
  list(GET part 1 header)
  find_path(SHOAL_CUDA_${wheel}_DIR ${header}
            PATHS ${wheels}/cu13/include ${wheels}/${wheel}/include ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(SHOAL_CUDA_${wheel}_DIR)
  if(SHOAL_CUDA_${wheel}_DIR)
    list(APPEND math_dirs ${SHOAL_CUDA_${wheel}_DIR})
  else()
    set(math_found OFF)
  endif()
endforeach()
mark_as_advanced(NCCL_INCLUDE_DIR SHOAL_CUDA_RUNTIME_DIR)

if(NCCL_INCLUDE_DIR AND SHOAL_CUDA_RUNTIME_DIR)
  set(SHOAL_NCCL_INCLUDE_DIRS ${NCCL_INCLUDE_DIR} ${SHOAL_CUDA_RUNTIME_DIR} ${math_dirs})
  list(REMOVE_DUPLICATES SHOAL_NCCL_INCLUDE_DIRS)
  if(math_found AND Libtorch_CUDA_LIBRARY)
    set(SHOAL_HAS_NCCL ON)
  endif()
endif()
