# shoal_use_pch(TARGET NAME): sources of TARGET begin with the precompiled headers NAME. Only headers of others are precompiled,
# so a change of shoal's own compiles what includes it and no more. Turn off with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
#
# Seconds of CPU for a source without and with: tensors/codec/composed.cpp 4.6, 3.2; workers/loader/batch_stream.cpp 2.7, 1.2;
# tests/workers/images/decode_test.cpp 6.9, 2.1.
#
# TARGET must be compiled with the same flags. Loading a precompiled <torch/torch.h> takes 4 s by itself, which is why only
# targets with sources that include it get it.

set(general <fmt/format.h> <algorithm> <atomic> <chrono> <filesystem> <functional> <map> <memory> <mutex> <optional> <string>
    <thread> <unordered_map> <variant> <vector>)

# shoal_pch(NAME [LIBRARY] LINKS target... HEADERS header... [OPTIONS option...]): defines NAME.
function(shoal_pch name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIBRARY" "" "LINKS;HEADERS;OPTIONS")
  set(source ${PROJECT_BINARY_DIR}/pch/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// The target of precompiled headers needs a source file.\n")
  add_library(shoal_pch_${name} OBJECT EXCLUDE_FROM_ALL ${source})
  shoal_build_settings(shoal_pch_${name})
  target_include_directories(shoal_pch_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(shoal_pch_${name} PRIVATE ${arg_LINKS})
  target_compile_options(shoal_pch_${name} PRIVATE ${arg_OPTIONS})
  set_target_properties(shoal_pch_${name} PROPERTIES POSITION_INDEPENDENT_CODE ${arg_LIBRARY})
  target_precompile_headers(shoal_pch_${name} PRIVATE ${arg_HEADERS})
endfunction()

function(shoal_use_pch target name)
  target_precompile_headers(${target} REUSE_FROM shoal_pch_${name})
endfunction()

shoal_pch(library LIBRARY LINKS fmt::fmt-header-only Threads::Threads HEADERS ${general})
if(SHOAL_TENSORS)
  shoal_pch(tensor_library LIBRARY LINKS fmt::fmt-header-only Threads::Threads Libtorch::Libtorch
            HEADERS <ATen/core/Tensor.h> ${general})
  shoal_pch(train_library LIBRARY LINKS fmt::fmt-header-only Threads::Threads Libtorch::Libtorch
            HEADERS <torch/csrc/distributed/c10d/ProcessGroup.hpp> <torch/csrc/autograd/custom_function.h> <torch/nn/module.h>
                    <torch/optim/optimizer.h> ${general})
endif()

# Programs of the tests and of docs/examples: at -Og, which compiles in three quarters of -O1's time, and at -O0 under sanitizers,
# whose checks are half of what is compiled. What they try is compiled as it is for users, but for its templates.
set(shoal_test_options $<$<CONFIG:Release>:-Og>$<$<CONFIG:RelWithDebInfo>:-O0>)
set(links fmt::fmt-header-only Threads::Threads)
if(SHOAL_TESTS)
  find_package(Catch2 REQUIRED)
  set(catch [["tests/support/catch.h"]])
  shoal_pch(test LINKS Catch2::Catch2 ${links} OPTIONS ${shoal_test_options} HEADERS ${catch} ${general})
endif()
if(SHOAL_TENSORS AND SHOAL_TESTS)
  shoal_pch(tensor_test LINKS Catch2::Catch2 ${links} Libtorch::Libtorch OPTIONS ${shoal_test_options} HEADERS <ATen/ATen.h> ${catch} ${general})
endif()
if(SHOAL_TENSORS AND SHOAL_EXAMPLES)
  shoal_pch(example LINKS ${links} Libtorch::Libtorch OPTIONS ${shoal_test_options} HEADERS <ATen/ATen.h> ${general})
endif()
# Of tests and examples, without Catch2, which would hide what an example forgets: it takes a gigabyte and half a minute.
if(SHOAL_TENSORS AND (SHOAL_TESTS OR SHOAL_EXAMPLES))
  shoal_pch(torch_program LINKS ${links} Libtorch::Libtorch OPTIONS ${shoal_test_options} HEADERS <torch/torch.h> ${general})
endif()
