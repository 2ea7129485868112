# shoal_use_torch_pch(TARGET): tests and examples include <torch/torch.h>, half of whose 14 s a file is parsing. It is
# precompiled once, here, and every such program reuses it. Turn off with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.

file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cpp.in "// The precompiled header's compilation needs a source file.\n")
configure_file(${PROJECT_BINARY_DIR}/torch_pch.cpp.in ${PROJECT_BINARY_DIR}/torch_pch.cpp COPYONLY)
add_library(shoal_torch_pch OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/torch_pch.cpp)
shoal_build_settings(shoal_torch_pch)
target_link_libraries(shoal_torch_pch PRIVATE shoal::workers)
target_precompile_headers(shoal_torch_pch PRIVATE <torch/torch.h>)

# Both must be compiled with the same flags: a target with definitions of its own cannot take part.
function(shoal_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM shoal_torch_pch)
endfunction()
