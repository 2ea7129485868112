# Sets SHOAL_REDUCER_CONSTRUCTOR to the number of parameters that the constructor of libtorch's c10d::Reducer takes: it
# grows with libtorch's versions. Seen: 12 in 2.11; 13 in 2.13, the last one with a default.
#
# Read from the header rather than tried by compiling, which takes 10 s. A constructor with a parameter that is not known
# here ends the configuration: what to pass for it has to be looked up first.

set(known params bucket_indices process_group expect_sparse_gradients bucket_bytes_cap find_unused_parameters
    gradient_as_bucket_view param_names first_bucket_bytes_cap skip_all_reduce_unused_params use_python_reducer
    bucket_bytes_cap_list batched_grad_copy)

set(header ${Libtorch_INCLUDE_DIR}/torch/csrc/distributed/c10d/reducer.hpp)
file(READ ${header} text)
if(NOT text MATCHES "explicit Reducer\\(([^)]*)\\);")
  message(FATAL_ERROR "${header}: found no constructor of c10d::Reducer. .cmake/DetectReducer.cmake has to learn this version.")
endif()
string(REGEX REPLACE "<[^,<>]*(<[^<>]*>)?[^<>]*>" "" parameters "${CMAKE_MATCH_1}")   # commas of template arguments
string(REGEX REPLACE "=[^,]*" "" parameters "${parameters}")
string(REGEX REPLACE "[ \n]+" " " parameters "${parameters}")
string(REPLACE "," ";" parameters "${parameters}")
set(names)
foreach(parameter ${parameters})
  string(STRIP "${parameter}" parameter)
  string(REGEX REPLACE ".* " "" name "${parameter}")
  list(APPEND names ${name})
endforeach()

list(LENGTH names SHOAL_REDUCER_CONSTRUCTOR)
list(SUBLIST known 0 ${SHOAL_REDUCER_CONSTRUCTOR} expected)
if(NOT names STREQUAL expected OR SHOAL_REDUCER_CONSTRUCTOR LESS 11)
  message(FATAL_ERROR "${header}: the constructor of c10d::Reducer takes (${names}), which is not known here: "
                      "extend .cmake/DetectReducer.cmake and workers/train for it.")
endif()
message(STATUS "c10d::Reducer takes ${SHOAL_REDUCER_CONSTRUCTOR} parameters")
