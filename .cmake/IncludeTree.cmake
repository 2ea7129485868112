# A header lies beside its source (ipc/queue.h) and is included as <shoal/ipc/queue.h>: in the build tree through
# links, after install from include/shoal/ipc.

set(SHOAL_INCLUDE_TREE ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${SHOAL_INCLUDE_TREE}/shoal)
foreach(folder ipc runtime tensors workers)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${SHOAL_INCLUDE_TREE}/shoal/${folder} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/workers/shoal.h ${SHOAL_INCLUDE_TREE}/shoal/shoal.h SYMBOLIC)
