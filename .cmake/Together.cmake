# shoal_together(RESULT NAME SIZE source...): RESULT is sources in place of these, each of which includes up to SIZE of one room
# (workers/train with its sub-folders, likewise tests/workers/train; elsewhere a folder; 0: all of it, 1: these sources as they
# are). Half of the time that a source takes, and more under sanitizers, goes into what it includes and instantiates, again for each.
# The sources of a room must have no two names in common outside of classes, blocks and namespaces: where each has its network Net, each has a
# namespace of its own name. Those with flags of their own stay by themselves.
#
# Not CMake's own UNITY_BUILD: it writes absolute paths, by which ccache would miss in every other clone.
function(shoal_together result name size)
  if(NOT size MATCHES "^[0-9]+$")   # else a source in its place would be left out
    message(FATAL_ERROR "shoal_together(${name}): ${size} is no number of sources")
  endif()
  if(size EQUAL 1)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(made)
  set(folders)
  foreach(source ${ARGN})
    set(is_by_itself FALSE)
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES SKIP_PRECOMPILE_HEADERS HEADER_FILE_ONLY)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(is_by_itself TRUE)
      endif()
    endforeach()
    if(is_by_itself OR source MATCHES "^\\$<")
      list(APPEND made ${source})
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(REGEX REPLACE "^((tests/)?(ipc|runtime|tensors|workers)/[^/]+).*" "\\1" folder ${folder})
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND folders ${folder})
    list(APPEND of_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  file(REAL_PATH ${PROJECT_BINARY_DIR} place)   # ".." of a path by way of a link leads elsewhere
  string(APPEND place /together)
  foreach(folder ${folders})
    set(number 0)
    list(LENGTH of_${folder} left)
    set(each ${left})
    if(size GREATER 0)   # as few as can be, and these as equal as can be
      math(EXPR each "(${left} + (${left} + ${size} - 1) / ${size} - 1) / ((${left} + ${size} - 1) / ${size})")
    endif()
    while(of_${folder})
      list(LENGTH of_${folder} left)
      if(left GREATER each)
        set(left ${each})
      endif()
      set(text "")
      foreach(i RANGE 1 ${left})
        list(POP_FRONT of_${folder} source)
        file(REAL_PATH ${source} source)
        cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${place})
        string(APPEND text "#include \"${source}\"\n")
      endforeach()
      set(file ${place}/${name}_${folder}_${number}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "@text@" @ONLY)
      # gcc tells a source's own types from others' by the file that it is given: here it takes them for a header's.
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
      list(APPEND made ${file})
      math(EXPR number "${number} + 1")
    endwhile()
  endforeach()
  set(${result} ${made} PARENT_SCOPE)
endfunction()

# The same for sources whose precompiled headers are torch's larger ones: twice as many. gcc instantiates at the end of each source
# what headers have asked for, precompiled or not: 4 s of the libraries', 5 s of <torch/torch.h>.
function(shoal_together_heavy result name size)
  if(size GREATER 1)
    math(EXPR size "2 * ${size}")
  endif()
  shoal_together(sources ${name} ${size} ${ARGN})
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# Of the libraries: so many that a change of one costs not much more than itself (6: 10 to 16 s, 12: 16 to 18 s, and 0.84 of
# the time for all that is installed). Under sanitizers, where few sources change, twice as many of those with torch's larger headers.
set(SHOAL_SOURCES_TOGETHER "" CACHE STRING
    "So many sources of a room are compiled as one; 0: all of them, 1: each by itself; empty: 12, or 24 with sanitizers and torch's larger headers")
set(SHOAL_TOGETHER "${SHOAL_SOURCES_TOGETHER}")
set(SHOAL_TOGETHER_HEAVY "${SHOAL_SOURCES_TOGETHER}")
if("${SHOAL_TOGETHER}" STREQUAL "")
  set(SHOAL_TOGETHER 12)
  set(SHOAL_TOGETHER_HEAVY 12)
  if(SHOAL_SANITIZE)
    set(SHOAL_TOGETHER_HEAVY 24)
  endif()
endif()
