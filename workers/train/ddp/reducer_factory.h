// Making a c10d::Reducer, whatever libtorch's version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace c10d {
class ProcessGroup;
class Logger;
class Reducer;
}  // namespace c10d

namespace shoal {

/// What every version of the constructor takes.
struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::size_t>> bucket_indices;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::vector<bool> expect_sparse;  // for each parameter
  std::int64_t bucket_bytes;
  std::int64_t first_bucket_bytes;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  bool skip_all_reduce_unused_params;
  std::unordered_map<std::size_t, std::string> parameter_names;
};

/// A Reducer and its Logger, without which it crashes as soon as the set of unused parameters changes: libtorch asks
/// there for a logger that only its Python side gives. The logger keeps the Reducer, so it goes first.
struct LoggedReducer {
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  c10d::Reducer* operator->() const { return reducer.get(); }
};

/// The only place that knows how the constructor's parameters changed: libtorch 2.11 to 2.13.
LoggedReducer make_reducer(ReducerArguments arguments);

}  // namespace shoal
