# Looks at configure time whether the constructor of libtorch's c10d::Reducer is one that workers/train knows: its parameters
# grow with libtorch's versions. Which of the known forms it is, is chosen in workers/train/ddp/reducer_factory.cpp by the compiler.
# Seen: 12 parameters in 2.11; 13 in 2.13, the last one with a default.
#
# Read from the header rather than tried by compiling, which takes 10 s.

set(known params bucket_indices process_group expect_sparse_gradients bucket_bytes_cap find_unused_parameters
    gradient_as_bucket_view param_names first_bucket_bytes_cap skip_all_reduce_unused_params use_python_reducer)

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

list(LENGTH names count)
list(SUBLIST names 0 11 first_names)
if(NOT first_names STREQUAL known)
  message(FATAL_ERROR "${header}: the constructor of c10d::Reducer takes (${names}), which is not known here: "
                      "extend workers/train/ddp/reducer_factory.cpp, then .cmake/DetectReducer.cmake.")
endif()
message(STATUS "c10d::Reducer takes ${count} parameters")
