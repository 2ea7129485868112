#include <shoal/workers/train/object_collectives.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace object_collectives_test {

namespace {

constexpr int kWorld = 3;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

struct Scores {
  std::string name;
  std::map<std::string, double> by_class;
  at::Tensor confusion;
  std::vector<int> samples;
};

/// The higher the rank, the larger: rank 0's fits into a cell of a ring, rank 2's takes a block of a megabyte.
Scores scores_of(int rank) {
  return {fmt::format("rank {}", rank),
          {{"cat", rank + 0.5}},
          at::full({2, rank + 1}, double(rank)),
          std::vector<int>(rank == 2 ? 300'000 : std::size_t(rank), rank)};
}
bool same(const Scores& a, const Scores& b) {
  return a.name == b.name && a.by_class == b.by_class && at::equal(a.confusion, b.confusion) && a.samples == b.samples;
}

int all_kinds(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  int checked = 0;
  auto check = [&](bool right, const char* what) {
    require(right, fmt::format("{} is wrong on rank {}", what, rank));
    ++checked;
  };
  const Scores own = scores_of(rank);
  std::vector<Scores> all = all_gather_object(ranks, own);
  check(all.size() == kWorld, "how many all_gather_object gives");
  for (int other = 0; other < kWorld; ++other)
    check(same(all[std::size_t(other)], scores_of(other)), "all_gather_object");
  all = gather_object(ranks, own, 1);
  check(all.size() == (rank == 1 ? kWorld : 0), "who gathers");
  for (std::size_t other = 0; other < all.size(); ++other) check(same(all[other], scores_of(int(other))), "gather");
  for (int root = 0; root < kWorld; ++root) {
    Scores value = own;
    broadcast_object(ranks, value, root);
    check(same(value, scores_of(root)), "broadcast_object");
  }
  const std::vector<Scores> given =
      rank == 2 ? all_gather_object(ranks, own) : (all_gather_object(ranks, own), std::vector<Scores>());
  check(same(scatter_object(ranks, given, 2), own), "scatter_object");
  check(all_gather_object(ranks, rank == 1) == std::vector<bool>{false, true, false}, "all_gather_object of bool");
  auto owned = all_gather_object(ranks, std::make_unique<int>(rank * 7));  // what cannot be copied
  check(*owned[2] == 14, "all_gather_object of what moves only");
  return checked;
}

/// Every rank writes to its own shared tensor when all have what they gathered.
std::vector<float> write_to_gathered(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  at::Tensor shared = empty_shared({4}).fill_(float(rank)), apart = at::full({4}, float(rank));
  std::vector<std::vector<at::Tensor>> all = all_gather_object(ranks, std::vector<at::Tensor>{shared, apart});
  ranks.barrier();
  shared.fill_(10 + float(rank));
  apart.fill_(20 + float(rank));
  ranks.barrier();
  std::vector<float> seen;
  for (const auto& tensors : all)
    for (const at::Tensor& tensor : tensors) seen.push_back(tensor[3].item<float>());
  all[std::size_t((rank + 1) % kWorld)][1].fill_(30);  // a copy of this rank's own: nobody else sees it
  ranks.barrier();
  seen.push_back(all[0][1][0].item<float>());
  return seen;
}

/// Cannot be encoded by whom it is told, or be decoded by whom.
struct Moody {
  int refused_by = -1;
  int unreadable_for = -1;
};
int the_rank = -1;

/// As many handles as no message can have, in what this rank sends.
struct Many {
  int of = -1;
};

}  // namespace
}  // namespace object_collectives_test

template <>
struct shoal::Codec<object_collectives_test::Moody> {
  using Moody = object_collectives_test::Moody;
  static constexpr std::uint64_t schema() { return schema_hash("Moody"); }
  static void encode(Encoder& encoder, const Moody& moody) {
    encoder.add(allocate_shared(5000));  // what it has begun has to go
    if (moody.refused_by == object_collectives_test::the_rank) throw std::domain_error("not in this mood");
    encoder.write(moody);
  }
  static Moody decode(Decoder& decoder) {
    auto moody = decoder.read<Moody>();
    if (moody.unreadable_for == object_collectives_test::the_rank) throw DecodeError("this cannot be read");
    return moody;
  }
};

template <>
struct shoal::Codec<object_collectives_test::Many> {
  using Many = object_collectives_test::Many;
  static constexpr std::uint64_t schema() { return schema_hash("Many"); }
  static void encode(Encoder& encoder, const Many& many) {
    encoder.write(many);
    for (int i = 0; many.of == object_collectives_test::the_rank && i <= UINT16_MAX; ++i)
      encoder.add(allocate_shared(8));
  }
  static Many decode(Decoder& decoder) { return decoder.read<Many>(); }
};

namespace object_collectives_test {
namespace {

template <class Call>
std::string said_by(Call call) {
  try {
    call();
  } catch (const std::domain_error& error) {
    return std::string("domain_error: ") + error.what();
  } catch (const std::invalid_argument& error) {
    return std::string("invalid_argument: ") + error.what();
  } catch (const DecodeError& error) {
    return std::string("DecodeError: ") + error.what();
  } catch (const PeerDied& error) {
    return std::string("PeerDied: ") + error.what();
  } catch (const Error& error) {
    return std::string("Error: ") + error.what();
  }
  return "";
}

/// What each call that fails says, with one that works behind each.
std::vector<std::string> failing(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  ranks.set_timeout(std::chrono::seconds(60));
  the_rank = rank;
  std::vector<std::string> said;
  auto attempt = [&](auto call) {
    said.push_back(said_by(call));
    auto all = all_gather_object(ranks, std::string(std::size_t(rank) * 1000, 'x'));
    require(all.size() == kWorld && all[2].size() == 2000, "the group cannot be used on");
  };
  attempt([&] { all_gather_object(ranks, Moody{1}); });
  attempt([&] { gather_object(ranks, Moody{2}, 0); });
  attempt([&] {
    Moody moody{0};
    broadcast_object(ranks, moody, 0);
  });
  attempt([&] { scatter_object(ranks, std::vector<int>(std::size_t(rank) + 1), 1); });
  attempt([&] { all_gather_object(ranks, Moody{-1, 1}); });
  attempt([&] { rank == 0 ? void(all_gather_object(ranks, 1)) : void(all_gather_object(ranks, std::string("1"))); });
  attempt([&] { rank == 0 ? void(gather_object(ranks, 1, 0)) : void(gather_object(ranks, 1, 1)); });
  attempt([&] { rank == 0 ? void(all_gather_object(ranks, 1)) : ranks.barrier(); });
  attempt([&] { gather_object(ranks, 1, 3); });
  attempt([&] { all_gather_object(ranks, Many{1}); });
  return said;
}

/// Blocks that are shown for the first time send letters, which come between the values.
int mixed_with_letters(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  int right = 0;
  for (int i = 0; i < 300; ++i) {
    at::Tensor fresh = empty_shared({2000}).fill_(float(i));
    if (i % 3 != 0) all_reduce(ranks, fresh);
    std::vector<std::string> all =
        all_gather_object(ranks, std::string(std::size_t((i * 37 + rank * 211) % 600), char('a' + rank)));
    bool good = i % 3 == 0 || fresh[1999].item<float>() == float(i * kWorld);
    for (int other = 0; other < kWorld; ++other)
      good =
          good && all[std::size_t(other)] == std::string(std::size_t((i * 37 + other * 211) % 600), char('a' + other));
    right += good;
  }
  return right;
}

}  // namespace

TEST_CASE("object collectives: values of every type and size come to those who are to get them") {
  auto checked = spawn({.nprocs = kWorld}, all_kinds, ShmGroup(kWorld));
  CHECK(checked == std::vector<int>{11, 14, 11});
}

TEST_CASE("object collectives: one rank alone gets its own value back") {
  Communicator alone = ShmGroup(1).join(0);
  CHECK(all_gather_object(alone, std::string("me")) == std::vector<std::string>{"me"});
  CHECK(gather_object(alone, 3) == std::vector<int>{3});
  CHECK(scatter_object(alone, std::vector<int>{4}) == 4);
  int value = 5;
  broadcast_object(alone, value);
  CHECK(value == 5);
}

TEST_CASE("object collectives: a shared tensor is the same memory on all ranks, a private one everybody's own") {
  for (auto& seen : spawn({.nprocs = kWorld}, write_to_gathered, ShmGroup(kWorld)))
    CHECK(std::vector<float>(seen.begin(), seen.begin() + 6) == std::vector<float>{10, 0, 11, 1, 12, 2});
}

TEST_CASE("object collectives: what one rank cannot send or read is told to all, and the group goes on") {
  auto said = spawn({.nprocs = kWorld}, failing, ShmGroup(kWorld));
  auto check = [&](std::size_t call, int culprit, const std::string& own, const std::string& others) {
    for (int rank = 0; rank < kWorld; ++rank) {
      INFO("call " << call << " on rank " << rank);
      CHECK_THAT(said[std::size_t(rank)][call], ContainsSubstring(rank == culprit ? own : others));
    }
  };
  check(0, 1, "domain_error: not in this mood",
        "Error: all_gather_object: rank 1 could not send its object_collectives_test::(anonymous namespace)::Moody: "
        "not in this mood");
  check(1, 2, "domain_error: not in this mood", "Error: gather_object: rank 2 could not send its");
  check(2, 0, "domain_error: not in this mood", "Error: broadcast_object: rank 0 could not send its");
  check(3, 1, "invalid_argument: scatter_object: 2 values for 3 ranks", "scatter_object: 2 values for 3 ranks");
  check(4, 1, "DecodeError: this cannot be read", "");
  CHECK(said[0][4].empty());
  check(5, 0,
        "rank 0 called all_gather_object of int where rank 1 called it of std::", "where rank 0 called it of int");
  check(6, 0, "rank 0 called gather_object(root 0) where rank 2 called gather_object(root 1)",
        "where rank 0 called gather_object(root 0)");
  check(7, 0, "rank 0 called all_gather_object() where rank 2 called barrier(",
        "called barrier(0 bytes) where rank 0 called all_gather_object()");
  check(8, -1, "", "invalid_argument: gather_object: root 3 in a group of 3 ranks");
  check(9, 1, "invalid_argument: a value with 65536 handles", "Error: all_gather_object: rank 1 could not send its");
}

TEST_CASE("object collectives: values and letters about buffers come through the same inboxes") {
  CHECK(spawn({.nprocs = kWorld}, mixed_with_letters, ShmGroup(kWorld)) == std::vector<int>(kWorld, 300));
}

}  // namespace object_collectives_test
