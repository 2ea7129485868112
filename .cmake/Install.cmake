# install(): headers, libraries and the files for find_package(shoal).

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shoal)

get_property(libraries GLOBAL PROPERTY SHOAL_LIBRARIES)
install(TARGETS ${libraries} EXPORT shoalTargets)
# All that install() takes, and nothing else: what ./dev install builds.
add_custom_target(installed)
add_dependencies(installed ${libraries})
foreach(program shoal shoal-rendezvous shoal-beton shoal-beton-write)
  if(TARGET ${program})
    add_dependencies(installed ${program})
  endif()
endforeach()
install(EXPORT shoalTargets NAMESPACE shoal:: DESTINATION ${package_dir})

set(doors ${SHOAL_DOORS})
if(NOT SHOAL_TENSORS)
  list(FILTER doors INCLUDE REGEX "^(ipc|runtime)$")
endif()
install(CODE "set(SOURCE [==[${PROJECT_SOURCE_DIR}]==])
set(DOORS [==[${doors}]==])
set(DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/shoal\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/.cmake/InstallHeaders.cmake)

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
