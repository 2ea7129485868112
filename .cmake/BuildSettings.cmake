# shoal_build_settings(TARGET): how shoal's own code is compiled. Nothing here reaches a user's program.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM)
    # A precompiled header changes its time stamp at every build: without this sloppiness ccache refuses to
    # look at sources that use one. Paths below the source folder count as relative: a second clone hits. What a source
    # includes is read off the compiler's list of it: otherwise ccache preprocesses first, a second for each source.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_IGNOREOPTIONS=--param=ggc-min-heapsize=* CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
        ${CCACHE_PROGRAM})
  endif()
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)   # libtorch of a Python environment lies in no library path

# fmt is header-only for whoever links shoal: libtorch's include folder brings a version of its own, so that no one library of
# fmt fits all. Compiled into every source that formats something, it costs 2 to 3 s each. So shoal's own sources take the
# declarations only, and ipc/text/fmt_once.cpp and tensors/fmt_once.cpp have the functions of the version that each sees.
# GCC only: no other compiler has the option that emits all inline functions, those of other headers among them, which is why
# these files are compiled without warnings. With sanitizers, where there is no libtorch, another compiler links the system's fmt.
function(shoal_compile_fmt_once source)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-DFMT_HEADER_ONLY=1;-fkeep-inline-functions;-O1;-w"
                                SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

function(shoal_build_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  # Frame pointers: the stack traces of failed processes and `perf` are right at next to no cost.
  # -fpch-preprocess: ccache asks for it where precompiled headers are used. The heap's size, in KiB: gcc collects its garbage
  # again and again from 128 MiB on, which takes a fifth of the time of a source full of templates; such a one has 1 GiB.
  target_compile_options(${target} PRIVATE -fno-omit-frame-pointer -Wall -Wextra -Wnon-virtual-dtor
                         $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-UFMT_HEADER_ONLY;--param=ggc-min-heapsize=2000000>)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT SHOAL_TENSORS AND SHOAL_SANITIZE)   # not what is installed
    target_compile_options(${target} PRIVATE -UFMT_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE fmt::fmt)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # It takes each reference from a function of a temporary for one into that temporary: all of ours point into the heap.
    target_compile_options(${target} PRIVATE -Wno-dangling-reference)
  endif()
  if(SHOAL_WERROR)
    # The excepted ones come from the optimizer's guesses, also inside system headers, and differ between
    # compiler versions: they are shown, and stop no build.
    target_compile_options(${target} PRIVATE -Werror)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-error=maybe-uninitialized -Wno-error=array-bounds
        -Wno-error=stringop-overflow -Wno-error=stringop-overread -Wno-error=restrict)
    endif()
  endif()
  if(SHOAL_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SHOAL_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${SHOAL_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND SHOAL_SANITIZE MATCHES address)
      target_compile_definitions(${target} PRIVATE __SANITIZE_ADDRESS__=1)   # as gcc says it
    endif()
  endif()
endfunction()
