# A header lies beside what it belongs to. One that lies in a door, a folder named here, is public: ipc/queue.h is included as
# <shoal/ipc/queue.h>. All others are shoal's own: ipc/heap/block.h is <shoal/internal/ipc/heap/block.h>. So it is in the build
# tree, through links, and after install. tests/checks read this list, too.

set(SHOAL_DOORS ipc runtime tensors workers workers/beton workers/checkpoint workers/data workers/datasets workers/images workers/tar workers/transforms workers/train)

# shoal_include_name(HEADER RESULT): how a header, given relative to the source folder, is included.
function(shoal_include_name header result)
  cmake_path(GET header PARENT_PATH folder)
  if(header STREQUAL "workers/shoal.h")
    set(${result} shoal/shoal.h PARENT_SCOPE)
  elseif(folder IN_LIST SHOAL_DOORS)
    set(${result} shoal/${header} PARENT_SCOPE)
  else()
    set(${result} shoal/internal/${header} PARENT_SCOPE)
  endif()
endfunction()

set(SHOAL_INCLUDE_TREE ${PROJECT_BINARY_DIR}/include)
file(REMOVE_RECURSE ${SHOAL_INCLUDE_TREE}/shoal)   # the links of headers that have gone
set(patterns)
foreach(layer ipc runtime tensors workers)
  list(APPEND patterns ${PROJECT_SOURCE_DIR}/${layer}/*.h ${PROJECT_SOURCE_DIR}/${layer}/*.inl)
endforeach()
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
foreach(header ${headers})
  shoal_include_name(${header} name)
  cmake_path(GET name PARENT_PATH folder)
  file(MAKE_DIRECTORY ${SHOAL_INCLUDE_TREE}/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${SHOAL_INCLUDE_TREE}/${name} SYMBOLIC)
endforeach()
