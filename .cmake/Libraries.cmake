# shoal_library(FOLDER PCH name LINKS target...): the library shoal_FOLDER (alias shoal::FOLDER) of all sources in the calling
# folder and its sub-folders, but those named after EXCLUDE. A folder without sources is a library of headers.

function(shoal_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PCH" "LINKS;PRIVATE_LINKS;EXCLUDE")
  set(target shoal_${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS *.h)
  foreach(excluded ${arg_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${excluded}/")
    list(FILTER headers EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${excluded}/")
  endforeach()
  if(sources)
    add_library(${target} ${sources})
    set(scope PUBLIC)
    shoal_build_settings(${target})
    shoal_use_pch(${target} ${arg_PCH})
    # Also as static libraries these may end up inside somebody's shared object.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_LINKS})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_20)
  endif()
  add_library(shoal::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${SHOAL_INCLUDE_TREE}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_LINKS})
  set_property(GLOBAL APPEND PROPERTY SHOAL_LIBRARIES ${target})
  set_property(GLOBAL PROPERTY SHOAL_HEADERS_${folder} "${headers}")
endfunction()
