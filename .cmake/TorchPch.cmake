# shoal_use_torch_pch(TARGET): <torch/torch.h> takes 8 s to parse. It is precompiled once, here, for all the programs that
# include it. Turn off with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
#
# Loading what is precompiled takes 4 s itself, so sources with leaner includes go without: measured, a test of the sampler
# compiles in 1.7 s without it and in 5.2 s with it.

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_pch.cpp CONTENT "// A precompiled header's target needs a source file.\n")
add_library(shoal_torch_pch OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/torch_pch.cpp)
shoal_build_settings(shoal_torch_pch)
target_link_libraries(shoal_torch_pch PRIVATE shoal::workers)
target_precompile_headers(shoal_torch_pch PRIVATE <torch/torch.h>)

# TARGET must be compiled with the same flags: one with definitions of its own cannot take part.
function(shoal_use_torch_pch target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(users 0)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    file(STRINGS ${source} includes REGEX "#include <torch/torch\\.h>")
    if(includes)
      math(EXPR users "${users}+1")
    else()
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  if(users GREATER 0)
    target_precompile_headers(${target} REUSE_FROM shoal_torch_pch)
  endif()
endfunction()
