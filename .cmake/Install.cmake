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

include(PkgConfig)
# Man pages, made from --help, and what completes the command in bash.
if(SHOAL_COMMAND AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/shoal.1 ${PROJECT_BINARY_DIR}/shoal.bash
    COMMAND ${PROJECT_SOURCE_DIR}/runtime/command/man_pages.py $<TARGET_FILE:shoal> ${PROJECT_BINARY_DIR}/man
    COMMAND $<TARGET_FILE:shoal> --completion bash > ${PROJECT_BINARY_DIR}/shoal.bash
    DEPENDS shoal ${PROJECT_SOURCE_DIR}/runtime/command/man_pages.py VERBATIM)
  add_custom_target(command_pages DEPENDS ${PROJECT_BINARY_DIR}/man/shoal.1)
  add_dependencies(installed command_pages)
  if(TARGET shoal-beton)
    add_dependencies(command_pages shoal-beton)   # `shoal beton --help` is its word
  endif()
  # OPTIONAL: a tree that was built by its targets one by one may lack them.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL FILES_MATCHING PATTERN "*.1")
  install(FILES ${PROJECT_BINARY_DIR}/shoal.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME shoal OPTIONAL)
endif()

# The pages that messages and --help name.
file(GLOB pages CONFIGURE_DEPENDS docs/*.md)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/shoal)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/shoal RENAME copyright)   # where Debian looks for it

# Where this build found libtorch: used when the consumer does not say otherwise.
set(SHOAL_TORCH_DIR "${Torch_DIR}")
configure_package_config_file(.cmake/shoalConfig.cmake.in ${PROJECT_BINARY_DIR}/shoalConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shoalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shoalConfig.cmake ${PROJECT_BINARY_DIR}/shoalConfigVersion.cmake
              .cmake/FindLibtorch.cmake
        DESTINATION ${package_dir})

include(Package)
