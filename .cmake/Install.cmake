# install(): headers, libraries and the files for find_package(shoal).

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shoal)

get_property(libraries GLOBAL PROPERTY SHOAL_LIBRARIES)
install(TARGETS ${libraries} EXPORT shoalTargets)
install(EXPORT shoalTargets NAMESPACE shoal:: DESTINATION ${package_dir})

set(folders ipc runtime)
if(SHOAL_TENSORS)
  list(APPEND folders tensors workers)
  install(FILES workers/shoal.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal OPTIONAL)
endif()
foreach(folder ${folders})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shoal/${folder} FILES_MATCHING PATTERN "*.h"
          PATTERN shoal.h EXCLUDE PATTERN command EXCLUDE PATTERN rendezvous EXCLUDE)
endforeach()

# The pages that messages and --help name.
file(GLOB pages CONFIGURE_DEPENDS docs/*.md)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/shoal)

# Where this build found libtorch: used when the consumer does not say otherwise.
set(SHOAL_TORCH_DIR "${Torch_DIR}")
configure_package_config_file(.cmake/shoalConfig.cmake.in ${PROJECT_BINARY_DIR}/shoalConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shoalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shoalConfig.cmake ${PROJECT_BINARY_DIR}/shoalConfigVersion.cmake
              .cmake/FindLibtorch.cmake
        DESTINATION ${package_dir})
