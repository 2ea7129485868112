// One rank of a group on several hosts: does what its first argument says, and prints what came of it. Its launcher's
// variables say which rank it is.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/launched_ranks.h>
#include <shoal/workers/train/process_group_parts.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/hosts/programs/rank/ddp.h"
#include "tests/hosts/programs/rank/messages.h"
#include "tests/hosts/programs/rank/odd_tensors.h"
#include "tests/hosts/programs/rank/parts.h"
#include "tests/hosts/programs/rank/ranks.h"
#include "tests/workers/train/backend/premul_sum.h"
#include "tests/workers/train/backend/random_calls.h"
#include "tests/workers/train/numbers.h"

namespace {

using shoal::test::first_places;
using shoal::test::Group;
using shoal::test::kPeriod;
using shoal::test::numbers_of;
using shoal::test::operations;
using shoal::test::reduced;
using shoal::test::repeated;
using shoal::test::require;
using shoal::test::Tensors;

int checked = 0;

std::string text_or(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value ? value : otherwise;
}

/// What each rank gives: other numbers for each rank and each call.
at::Tensor given(int rank, std::int64_t count, at::ScalarType type, int salt) {
  return repeated(numbers_of(rank, count, type, salt), count);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  // What a half type rounds is rounded once more a host: as near as the type is.
  const bool rounds = a.is_floating_point() || a.is_complex();
  return rounds ? at::allclose(a.to(at::kComplexDouble), b.to(at::kComplexDouble), 1e-2, 1e-2) : at::equal(a, b);
}

struct Ranks {
  Group group;
  int me, world;

  Tensors given_by_all(std::int64_t count, at::ScalarType type, int salt) const {
    Tensors all;
    for (int rank = 0; rank < world; ++rank) all.push_back(given(rank, count, type, salt));
    return all;
  }
  at::Tensor reduced_of_all(std::int64_t count, at::ScalarType type, int salt, c10d::ReduceOp::RedOpType op) const {
    return repeated(reduced(given_by_all(std::min(count, kPeriod), type, salt), op), count);
  }
  Tensors empty(std::int64_t count, at::ScalarType type) const {
    Tensors all;
    for (int rank = 0; rank < world; ++rank) all.push_back(at::zeros({count}, type));
    return all;
  }
};

void reductions(const Ranks& r, std::int64_t count, at::ScalarType type, bool shared) {
  for (const auto op : operations(type)) {
    const std::string what = fmt::format("op {} of {} {}", int(op), count, c10::toString(type));
    const at::Tensor expected = r.reduced_of_all(count, type, 1, op);
    Tensors data{given(r.me, count, type, 1)};
    if (shared) shoal::share_memory_(data[0]);
    c10d::AllreduceOptions all;
    all.reduceOp = op;
    r.group->allreduce(data, all)->wait();
    require(same(data[0], expected), "allreduce, " + what);

    for (const int root : {0, r.world - 1}) {
      Tensors own{given(r.me, count, type, 1)};
      c10d::ReduceOptions one;
      one.reduceOp = op;
      one.rootRank = root;
      r.group->reduce(own, one)->wait();
      require(same(own[0], r.me == root ? expected : given(r.me, count, type, 1)), "reduce, " + what);
    }

    at::Tensor parts = given(r.me, count * r.world, type, 2), part = at::zeros({count}, type);
    c10d::ReduceScatterOptions scatter;
    scatter.reduceOp = op;
    r.group->_reduce_scatter_base(part, parts, scatter)->wait();
    require(same(part, r.reduced_of_all(count * r.world, type, 2, op).narrow(0, r.me * count, count)),
            "reduce_scatter, " + what);
  }
}

/// Each rank has a factor of its own.
void multiplied(const Ranks& r, std::int64_t count, at::ScalarType type) {
  if (!at::isFloatingType(type) || type == at::kBFloat16) return;
  at::Tensor expected = at::zeros({count}, type);
  for (int rank = 0; rank < r.world; ++rank) expected = expected + given(rank, count, type, 1) * (rank + 1);
  const c10d::ReduceOp factor = shoal::test::premul_sum(double(r.me + 1));
  Tensors data{given(r.me, count, type, 1)};
  c10d::AllreduceOptions all;
  all.reduceOp = factor;
  r.group->allreduce(data, all)->wait();
  require(same(data[0], expected), "allreduce, PREMUL_SUM");

  const at::Tensor own = given(r.me, count, type, 1);
  Tensors one{own.clone()};
  c10d::ReduceOptions to_last;
  to_last.reduceOp = factor;
  to_last.rootRank = r.world - 1;
  r.group->reduce(one, to_last)->wait();
  require(same(one[0], r.me == r.world - 1 ? expected : own), "reduce, PREMUL_SUM");

  at::Tensor parts = own.repeat({r.world}), part = at::zeros({count}, type);
  c10d::ReduceScatterOptions scatter;
  scatter.reduceOp = factor;
  r.group->_reduce_scatter_base(part, parts, scatter)->wait();
  require(same(part, expected) && same(parts, own.repeat({r.world})), "reduce_scatter, PREMUL_SUM");
}

void movements(const Ranks& r, std::int64_t count, at::ScalarType type, bool shared) {
  const std::string what = fmt::format("{} {}", count, c10::toString(type));
  const Tensors all = r.given_by_all(count, type, 3);
  Tensors own{given(r.me, count, type, 3)};
  if (shared) shoal::share_memory_(own[0]);

  std::vector<Tensors> gathered{r.empty(count, type)};
  r.group->allgather(gathered, own)->wait();
  for (int rank = 0; rank < r.world; ++rank) require(same(gathered[0][rank], all[rank]), "allgather, " + what);

  for (int root = 0; root < r.world; ++root) {
    Tensors data{given(r.me, count, type, 4)};
    c10d::BroadcastOptions broadcast;
    broadcast.rootRank = root;
    r.group->broadcast(data, broadcast)->wait();
    require(same(data[0], given(root, count, type, 4)), "broadcast, " + what);

    std::vector<Tensors> outputs;
    if (r.me == root) outputs.push_back(r.empty(count, type));
    c10d::GatherOptions gather;
    gather.rootRank = root;
    r.group->gather(outputs, own, gather)->wait();
    for (int rank = 0; rank < r.world && r.me == root; ++rank)
      require(same(outputs[0][rank], all[rank]), "gather, " + what);

    std::vector<Tensors> inputs;
    if (r.me == root) {
      inputs.emplace_back();
      for (int rank = 0; rank < r.world; ++rank) inputs[0].push_back(given(root, count, type, 10 + rank));
    }
    Tensors part{at::zeros({count}, type)};
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    r.group->scatter(part, inputs, scatter)->wait();
    require(same(part[0], given(root, count, type, 10 + r.me)), "scatter, " + what);
  }

  // Unequal parts: rank a sends (a + 2 b) % 3 times `count` to rank b.
  auto rows = [&](int from, int to) { return std::int64_t((from + 2 * to) % 3) * count; };
  std::vector<std::int64_t> in, out;
  Tensors sent, expected;
  for (int rank = 0; rank < r.world; ++rank) {
    in.push_back(rows(r.me, rank));
    out.push_back(rows(rank, r.me));
    sent.push_back(given(r.me, in.back(), type, 20 + rank));
    expected.push_back(given(rank, out.back(), type, 20 + r.me));
  }
  at::Tensor input = at::cat(sent),
             output = at::zeros({std::accumulate(out.begin(), out.end(), std::int64_t(0))}, type);
  r.group->alltoall_base(output, input, out, in)->wait();
  require(same(output, at::cat(expected)), "alltoall_base, " + what);
  Tensors outputs;
  for (const std::int64_t size : out) outputs.push_back(at::zeros({size}, type));
  r.group->alltoall(outputs, sent)->wait();
  for (int rank = 0; rank < r.world; ++rank) require(same(outputs[rank], expected[rank]), "alltoall, " + what);
}

/// Sums whose bits depend on the order: all ranks have the same ones, those of the documented order, in every run.
void bits(const Ranks& r, const std::vector<int>& ranks_of_hosts) {
  for (const std::int64_t count : {3, 1000, 70'000, 2'300'001}) {  // the last one goes piece by piece
    auto number = [&](int rank) {
      return (first_places(count, at::kFloat) * 0.37f + float(rank) * 1.1f).sin() * std::pow(10.f, float(rank % 3));
    };
    at::Tensor expected;
    int rank = 0;
    for (const int ranks : ranks_of_hosts) {
      at::Tensor sum = number(rank++);
      for (int local = 1; local < ranks; ++local) sum = sum + number(rank++);
      expected = expected.defined() ? expected + sum : sum;
    }
    Tensors data{repeated(number(r.me), count)};
    r.group->allreduce(data)->wait();
    require(at::equal(data[0], repeated(expected, count)), fmt::format("the bits of a sum of {}", count));
  }
}

/// Of some rows each, one of them all ranks'; rank 1 has none.
at::Tensor sparse_of(int rank, at::ScalarType type) {
  const std::int64_t rows = rank == 1 ? 0 : rank + 2;
  const at::Tensor indices =
      at::stack({(at::arange(rows, at::kLong) * (rank + 1)) % 6, at::full({rows}, 2, at::kLong)});
  return at::sparse_coo_tensor(indices, given(rank, rows * 3, type, 5).view({rows, 3}), {6, 4, 3});
}

void sparse_sums(const Ranks& r) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    at::Tensor expected = at::zeros({6, 4, 3}, type == at::kLong ? at::kLong : at::kFloat);
    for (int rank = 0; rank < r.world; ++rank) expected = expected + sparse_of(rank, type).to_dense();
    Tensors own{sparse_of(r.me, type)};
    r.group->getBackend(c10::kCPU)->allreduce(own)->wait();
    require(own[0].is_coalesced() && same(own[0].to_dense(), expected.to(type)),
            fmt::format("a sparse sum of {}", c10::toString(type)));
    own = {sparse_of(r.me, type)};
    if (type == at::kLong) continue;
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    r.group->getBackend(c10::kCPU)->allreduce_sparse(own, average)->wait();
    require(same(own[0].to_dense(), (expected / double(r.world)).to(type)), "a sparse average");
  }
  Tensors other{sparse_of(r.me, r.me == 1 ? at::kDouble : at::kFloat)};
  std::string said = "nothing";
  try {
    r.group->getBackend(c10::kCPU)->allreduce(other)->wait();
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  require(said.find("gave the sum of a sparse tensor of Float [6, 4, 3]") != std::string::npos &&
              said.find("the sum of a sparse tensor of Double [6, 4, 3], 2 of its") != std::string::npos,
          said);
}

void collectives(const Ranks& r) {
  const int scale = std::atoi(text_or("SHOAL_TEST_SCALE", "1").c_str());
  std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kComplexFloat};
  if (scale > 1)
    types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,         at::kChar,
             at::kShort, at::kInt,    at::kLong, at::kBool,     at::kComplexFloat, at::kComplexDouble};
  std::vector<std::int64_t> counts{1, 777, 40'000};
  if (scale > 1) counts = {0, 1, 5, 777, 4096, 40'000, 1 << 20};
  for (const at::ScalarType type : types)
    for (const std::int64_t count : counts) {
      if (scale == 1 && count == 40'000 && type != at::kFloat) continue;
      reductions(r, count, type, count == 777);
      multiplied(r, count, type);
      movements(r, count, type, count == 777);
    }
  std::vector<int> ranks_of_hosts;
  for (const char digit : text_or("RANKS_OF_HOSTS", "")) ranks_of_hosts.push_back(digit - '0');
  bits(r, ranks_of_hosts);
  sparse_sums(r);
  r.group->barrier()->wait();
}

/// Sums that go piece by piece (of 4 MiB): whole pieces, a last one that is cut otherwise, and one of a single element.
void pieces(const Ranks& r) {
  constexpr std::int64_t kPiece = 4 << 20, kCache = 64;
  for (const std::int64_t bytes : {2 * kPiece, 2 * kPiece + 4, 3 * kPiece - kCache, 3 * kPiece + 5000}) {
    const std::int64_t count = bytes / 4;
    const int salt = int(bytes % 11);
    Tensors data{given(r.me, count, at::kInt, salt)};
    r.group->allreduce(data)->wait();
    require(at::equal(data[0], r.reduced_of_all(count, at::kInt, salt, c10d::ReduceOp::SUM)),
            fmt::format("the sum of {} bytes", bytes));
  }
}

void say_ready() {
  // One line a rank, written in one piece.
  if (std::FILE* file = std::fopen(text_or("READY_FILE", "/dev/null").c_str(), "a")) {
    std::fputs("ready\n", file);
    std::fclose(file);
  }
}

/// A child with copies of what this process has open, or a program that it starts: the test ends it.
void start_child(const std::string& how) {
  const std::string file = text_or("CHILD_FILE", "/dev/null");
  if (how == "program")  // NOLINTNEXTLINE(bugprone-command-processor): as programs do it
    require(std::system(fmt::format("sleep 600 </dev/null >/dev/null 2>&1 & echo $! >{}", file).c_str()) == 0, how);
  if (how != "fork" || ::fork() != 0) return;
  for (const int number : {0, 1, 2}) ::dup2(::open("/dev/null", O_RDWR), number);
  if (std::FILE* said = std::fopen(file.c_str(), "w")) {
    fmt::print(said, "{}\n", ::getpid());
    std::fclose(said);
  }
  for (;;) ::pause();
}

/// What a rank does that others wait for, until it has heard that they have given up, and the test says that they have
/// ended.
__attribute__((noinline)) void evaluate_until_told(const Group& group) {
  bool told = false;
  const std::string ended = text_or("ENDED_FILE", "");
  for (Tensors one{at::ones({1})}; !told || ::access(ended.c_str(), F_OK) != 0;
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    try {
      group->send(one, group->getRank() == 0 ? 1 : 0, 9);
    } catch (const shoal::TimeoutError&) {
      told = true;
    } catch (const shoal::PeerDied&) {
      // The other one is gone, and why is not known yet.
    }
}

/// Sums until something goes wrong.
void until_it_fails(const Ranks& r, std::int64_t count, std::chrono::milliseconds timeout) {
  c10d::AllreduceOptions options;
  options.timeout = timeout;
  for (long round = 0;; ++round) {
    Tensors data{at::ones({count})};
    if (text_or("SHARED", "0") == "1") shoal::share_memory_(data[0]);
    r.group->allreduce(data, options)->wait();
    require(data[0][0].item<float>() == float(r.world), "the sum before the failure");
    if (round == std::atoi(text_or("READY_ROUND", "20").c_str())) say_ready();
  }
}

int work(const std::string& what) {
  const shoal::Environment self = shoal::environment();
  shoal::LaunchedRanksOptions options;
  options.backend = text_or("BACKEND", "auto");
  options.timeout = std::chrono::milliseconds(std::atoi(text_or("MEET_MS", "60000").c_str()));
  options.link_timeout = std::chrono::milliseconds(std::atoi(text_or("LINK_MS", "30000").c_str()));
  if (text_or("PROGRESS", "") == "thread") options.progress = shoal::Progress::thread;
  if (text_or("PROGRESS", "") == "in_call") options.progress = shoal::Progress::in_call;
  Group group = shoal::init_process_group(options);
  Ranks r{group, group->getRank(), group->getSize()};
  fmt::print("MET rank {} of {} by {}\n", r.me, r.world, group->getBackendName());
  std::fflush(stdout);
  start_child(text_or("CHILD", ""));
  const std::chrono::milliseconds timeout(std::atoi(text_or("CALL_MS", "600000").c_str()));
  if (what == "leave") {
    r.group.reset();
    shoal::test::messages_of_one_that_leaves(std::move(group));
    fmt::print("DONE {} checked\n", checked);
    return 0;
  }
  if (what == "collectives") collectives(r);
  if (what == "pieces") pieces(r);
  if (what == "sum") {
    Tensors data{at::ones({5})};
    group->allreduce(data)->wait();
    require(data[0][0].item<float>() == float(r.world), "the sum");
  }
  if (what == "two_groups") {
    options.name = "second";
    const Group second = shoal::init_process_group(options);
    for (const Group& each : {second, group}) {
      Tensors data{at::ones({5})};
      each->allreduce(data)->wait();
      require(data[0][0].item<float>() == float(r.world), "the sum of one of two groups");
    }
  }
  if (what == "until_it_fails") until_it_fails(r, 1000, timeout);
  if (what == "large_until_it_fails") until_it_fails(r, 1 << 20, timeout);
  if (what == "odd_tensors") shoal::test::odd_tensors(group);
  if (what == "odd_ranks") shoal::test::odd_ranks(group);
  if (what == "random_calls")
    shoal::test::random_calls(group, std::uint64_t(std::atoi(text_or("SEED", "1").c_str())), 60, 1 << 18);
  if (what == "messages") shoal::test::messages(group);
  if (what == "messages_while_others_wait") shoal::test::messages_while_others_wait(group);
  if (what == "wait_for_the_last") shoal::test::wait_for_the_last(group, say_ready);
  if (what == "part_without_store") {
    if (r.me == 0) shoal::stop_at("hosts.part");
    group->getBackend(c10::kCPU)->setTimeout(timeout);
    shoal::split(group, 0, 0);
  }
  if (what == "parts") shoal::test::parts_of_a_group(group);
  if (what == "under_way") {
    options.name = "second";
    shoal::test::work_under_way(group, shoal::init_process_group(options));
  }
  // One rank gives lists that make no sense: it alone knows why, and the others are told who.
  if (what == "refusal") {
    Tensors in, out;
    for (int rank = 0; rank < r.world; ++rank) {
      in.push_back(at::ones({2}));
      out.push_back(at::zeros({2}));
    }
    if (r.me == 1) in.pop_back();
    std::string said = "nothing";
    try {
      group->alltoall(out, in)->wait();
    } catch (const std::invalid_argument& error) {
      said = error.what();
    }
    fmt::print("SAID {}\n", said);
    Tensors data{at::ones({5})};
    group->allreduce(data)->wait();
    require(data[0][0].item<float>() == float(r.world), "the sum after a refusal");
  }
  if (what == "ddp") {
    const double difference = shoal::test::difference_of_ddp(group);
    require(difference < 1e-12, fmt::format("the parameters after a training, by {}", difference));
  }
  if (what == "lost_pass") fmt::print("SAID {}\n", shoal::test::said_of_lost_pass(group));
  if (what == "diloco") {
    std::vector<int> host_of;
    int host = 0;
    for (const char digit : text_or("RANKS_OF_HOSTS", "")) host_of.insert(host_of.end(), digit - '0', host++);
    const double difference = shoal::test::difference_of_diloco(group, host_of);
    require(difference < 1e-12, fmt::format("the parameters after a training by DiLoCo, by {}", difference));
  }
  if (what == "hold") {
    say_ready();
    ::pause();
  }
  // The last rank computes and does not come; the others wait for it while something happens to another one.
  if (what == "late") {
    say_ready();
    if (r.me == r.world - 1) ::pause();
    until_it_fails(r, 10, timeout);
  }
  // Likewise, and ends when it knows that the others have given up.
  if (what == "evaluates") {
    if (r.me == r.world - 1) {
      for (int round = 0; round < 5; ++round) {
        Tensors data{at::ones({10})};
        group->allreduce(data)->wait();
      }
      evaluate_until_told(group);
    } else {
      until_it_fails(r, 10, timeout);
    }
  }
  if (what == "mismatch") {
    for (int round = 0; round < 2; ++round) {
      // In the first round a rank of another host, in the second a rank of the same host differs.
      const int other = round == 0 ? r.world - 1 : 1;
      Tensors data{at::ones({r.me == other ? 5 : 4})};
      std::string said = "nothing";
      try {
        group->allreduce(data)->wait();
      } catch (const shoal::CollectiveMismatch& error) {
        said = error.what();
      }
      fmt::print("SAID {}\n", said);
    }
    Tensors data{at::ones({5})};
    group->allreduce(data)->wait();
    require(data[0][0].item<float>() == float(r.world), "the sum after calls that differ");
  }
  fmt::print("DONE {} checked\n", checked);
  return 0;
}

std::string spawned_rank(int rank) {
  const Group group = shoal::init_process_group({.backend = text_or("BACKEND", "auto")});
  Tensors data{at::full({5}, float(rank + 1))};
  group->allreduce(data)->wait();
  return fmt::format("rank {} of {} by {}: {}", group->getRank(), group->getSize(), group->getBackendName(),
                     data[0][4].item<float>());
}

}  // namespace

void shoal::test::require(bool condition, const std::string& what) {
  ++checked;
  if (!condition) throw std::logic_error("wrong: " + what);
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::set_num_threads(1);
  if (argc > 1 && std::string(argv[1]) == "spawn") {
    for (int round = 0; round < 2; ++round)
      for (const std::string& said : shoal::spawn({.nprocs = 3}, spawned_rank)) fmt::print("{}\n", said);
    return 0;
  }
  int code = 0;
  const auto began = std::chrono::steady_clock::now();
  try {
    code = work(argc > 1 ? argv[1] : "");
  } catch (const shoal::PeerDied& error) {
    fmt::print("THREW PeerDied: {}\n", error.what());
  } catch (const shoal::TimeoutError& error) {
    fmt::print("THREW TimeoutError: {}\n", error.what());
  } catch (const std::invalid_argument& error) {
    fmt::print("THREW invalid_argument: {}\n", error.what());
  } catch (const shoal::Error& error) {
    fmt::print("THREW Error: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print("THREW something else: {}\n", error.what());
    code = 1;
  }
  const auto now = std::chrono::steady_clock::now();
  fmt::print("AT {} ms, after {} ms\n",
             std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count(),
             std::chrono::duration_cast<std::chrono::milliseconds>(now - began).count());
  std::fflush(stdout);
  return code;
}
