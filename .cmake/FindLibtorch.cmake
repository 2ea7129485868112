# FindLibtorch: the target Libtorch::Libtorch. Also installed, for find_package(shoal).
#
# Looked for by Torch_DIR and CMAKE_PREFIX_PATH (variables of CMake or of the environment), as find_package(Torch) does.
# Torch's own package file is not used: of the wheel that pip installs where no index for CPUs is set up, it demands a
# complete CUDA toolkit, and of any wheel it warns of static libraries that no wheel ships.

string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
find_path(Torch_DIR NAMES TorchConfig.cmake PATH_SUFFIXES share/cmake/Torch Torch
          HINTS ENV Torch_DIR ${CMAKE_PREFIX_PATH} ${prefixes} PATHS ${Libtorch_FALLBACK_DIRS})
set(Libtorch_PREFIX "${Torch_DIR}/../../..")
find_library(Libtorch_CPU_LIBRARY torch_cpu PATHS ${Libtorch_PREFIX}/lib NO_DEFAULT_PATH)
find_library(Libtorch_C10_LIBRARY c10 PATHS ${Libtorch_PREFIX}/lib NO_DEFAULT_PATH)
find_path(Libtorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h PATHS ${Libtorch_PREFIX}/include NO_DEFAULT_PATH)
if(EXISTS "${Torch_DIR}/TorchConfigVersion.cmake")
  file(STRINGS ${Torch_DIR}/TorchConfigVersion.cmake version REGEX "PACKAGE_VERSION \"")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" Libtorch_VERSION "${version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "Give -DTorch_DIR=.../torch/share/cmake/Torch, or let ./dev setup install it.")
mark_as_advanced(Torch_DIR Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR)

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  set(libraries ${Libtorch_CPU_LIBRARY} ${Libtorch_C10_LIBRARY})
  # The CUDA half takes seconds to load and gigabytes to link: only where there is a toolkit to use it with.
  find_library(Libtorch_CUDA_LIBRARY torch_cuda PATHS ${Libtorch_PREFIX}/lib NO_DEFAULT_PATH)
  mark_as_advanced(Libtorch_CUDA_LIBRARY)
  find_package(CUDAToolkit QUIET)
  if(Libtorch_CUDA_LIBRARY AND CUDAToolkit_FOUND)
    # Nothing refers to it by a symbol: it registers itself when it is loaded.
    list(APPEND libraries "-Wl,--no-as-needed,${Libtorch_CUDA_LIBRARY},--as-needed")
  endif()
  # What the headers must be told is written down where libtorch describes its own targets (USE_C10D_GLOO and such).
  file(STRINGS ${Torch_DIR}/../Caffe2/Caffe2Targets.cmake definitions REGEX "INTERFACE_COMPILE_DEFINITIONS \"[A-Z]")
  string(REGEX MATCHALL "USE_[A-Z0-9_]+" definitions "${definitions}")
  list(REMOVE_DUPLICATES definitions)

  add_library(Libtorch::Libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    ${Libtorch_INCLUDE_DIR} ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_compile_definitions(Libtorch::Libtorch INTERFACE ${definitions})
  target_link_libraries(Libtorch::Libtorch INTERFACE ${libraries})
endif()
