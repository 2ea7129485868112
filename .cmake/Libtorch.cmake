# Finds libtorch: Torch_DIR or CMAKE_PREFIX_PATH first, else the Python environment that `./dev setup` makes.
# Gives the target shoal_libtorch.

file(GLOB venv_torch ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch)
set(kineto_LIBRARY unused)    # else the wheel's own file warns that this static library, which it never ships, is missing
find_package(Torch 2.11 CONFIG QUIET PATHS ${venv_torch})
unset(kineto_LIBRARY)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "libtorch 2.11 or newer was not found. Run ./dev setup, or pass -DTorch_DIR=.../torch/share/cmake/Torch, "
                      "or build without tensors by -DSHOAL_TENSORS=OFF.")
endif()
message(STATUS "libtorch ${Torch_VERSION}: ${Torch_DIR}")

add_library(shoal_libtorch INTERFACE)
target_link_libraries(shoal_libtorch INTERFACE torch)
set_target_properties(shoal_libtorch PROPERTIES EXPORT_NAME libtorch)
