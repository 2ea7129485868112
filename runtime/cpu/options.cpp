#include <shoal/runtime/options.h>

#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

namespace shoal {

namespace {

struct Named {
  StartMethod method;
  const char* name;
};
/// The default one first.
constexpr Named kMethods[] = {
    {StartMethod::forkserver, "forkserver"},
    {StartMethod::spawn, "spawn"},
    {StartMethod::fork, "fork"},
};

std::atomic<StartMethod> default_method{kMethods[0].method};

}  // namespace

const char* method_name(StartMethod method) {
  for (const Named& each : kMethods)
    if (each.method == method) return each.name;
  return "?";
}

void set_start_method(StartMethod method) noexcept { default_method = method; }
StartMethod get_start_method() noexcept { return default_method; }
std::vector<StartMethod> get_all_start_methods() {
  std::vector<StartMethod> all;
  for (const Named& each : kMethods) all.push_back(each.method);
  return all;
}

void refuse_captures(StartMethod method) {
  throw std::invalid_argument(
      fmt::format("the start method is {}, but a callable with captures exists in this process only: use "
                  "StartMethod::fork, or pass a function and arguments",
                  method_name(method)));
}

}  // namespace shoal
