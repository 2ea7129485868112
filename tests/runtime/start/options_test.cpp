// Options of processes with and without captures: the same members.
#include <shoal/runtime/options.h>

#include <shoal/internal/ipc/codec/members.h>
#include <tests/support/catch.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using shoal::ForkOnly;
using shoal::StartMethod;
using namespace std::chrono_literals;

const std::vector<std::pair<std::string, std::string>> kEnvironment{{"NAME", "value"}};

template <std::size_t I = 0, class Options>
void check_members(const Options& one, const Options& other, bool equal) {
  const auto left = shoal::members_of(one), right = shoal::members_of(other);
  if constexpr (I < std::tuple_size_v<decltype(left)>) {
    INFO("member " << I);
    CHECK((std::get<I>(left) == std::get<I>(right)) == equal);
    check_members<I + 1>(one, other, equal);
  }
}

}  // namespace

TEST_CASE("options: a callable with captures gets every member of them") {
  // None as it is by itself: one that is added has to be set here, and then to arrive.
  const shoal::SpawnOptions spawn{.nprocs = 3,
                                  .start_method = StartMethod::fork,
                                  .name = "n",
                                  .grace_period = 7s,
                                  .num_threads = 5,
                                  .fork_despite_threads = true,
                                  .binding = shoal::Binding::core,
                                  .environment = kEnvironment};
  check_members(spawn, shoal::SpawnOptions{}, false);
  const shoal::BasicSpawnOptions<ForkOnly> forks = spawn;
  check_members(shoal::detail::with_method<StartMethod>(forks), spawn, true);

  const shoal::ProcessOptions process{.name = "n",
                                      .start_method = StartMethod::fork,
                                      .daemon = false,
                                      .grace_period = 7s,
                                      .num_threads = 5,
                                      .fork_despite_threads = true,
                                      .binding = shoal::Binding::core,
                                      .part = 1,
                                      .parts = 4,
                                      .environment = kEnvironment};
  check_members(process, shoal::ProcessOptions{}, false);
  const shoal::BasicProcessOptions<ForkOnly> one = process;
  check_members(shoal::detail::with_method<StartMethod>(one), process, true);
}

TEST_CASE("options: a callable with captures refuses a start method that loses them") {
  const shoal::SpawnOptions spawn{.start_method = StartMethod::spawn};
  CHECK_THROWS_AS(shoal::BasicSpawnOptions<ForkOnly>(spawn), std::invalid_argument);
  const shoal::ProcessOptions process{.start_method = StartMethod::forkserver};
  CHECK_THROWS_AS(shoal::BasicProcessOptions<ForkOnly>(process), std::invalid_argument);
}
