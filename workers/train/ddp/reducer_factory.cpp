#include <shoal/internal/workers/train/ddp/reducer_factory.h>

#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>

namespace shoal {
namespace {

using Names = std::unordered_map<std::size_t, std::string>;

/// The parameters that all versions begin with.
template <class Reducer, class... More>
constexpr bool kTakes = std::is_constructible_v<Reducer, std::vector<at::Tensor>, std::vector<std::vector<std::size_t>>,
                                                c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, std::int64_t,
                                                bool, bool, Names, std::int64_t, More...>;

/// A template, so that only the branch that fits is compiled.
template <class Reducer>
std::shared_ptr<Reducer> make(ReducerArguments&& a) {
  auto with = [&](auto... more) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.bucket_indices), std::move(a.process_group),
                                     std::move(a.expect_sparse), a.bucket_bytes, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, std::move(a.parameter_names), a.first_bucket_bytes,
                                     std::move(more)...);
  };
  const bool skip_unused = a.skip_all_reduce_unused_params;
  constexpr bool kPythonReducer = false;
  if constexpr (kTakes<Reducer, bool, bool, std::vector<std::int64_t>>) {
    return with(skip_unused, kPythonReducer, std::vector<std::int64_t>());  // empty: the two sizes above hold
  } else {
    static_assert(kTakes<Reducer, bool, bool>,
                  "shoal: this libtorch's c10d::Reducer has a constructor that is not known here yet");
    return with(skip_unused, kPythonReducer);
  }
}

}  // namespace

LoggedReducer make_reducer(ReducerArguments arguments) {
  LoggedReducer made;
  made.reducer = make<c10d::Reducer>(std::move(arguments));
  made.logger = std::make_shared<c10d::Logger>(made.reducer);
  made.reducer->set_logger(made.logger);
  return made;
}

}  // namespace shoal
