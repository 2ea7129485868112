#include "tests/hosts/programs/rank/parts.h"

#include <fmt/format.h>
#include <shoal/workers/train/process_group_parts.h>

#include <thread>

namespace shoal::test {
namespace {

/// The members' ranks in the whole group, in the order of their ranks in this one.
std::vector<int> members_of(const Group& part, int rank_in_whole) {
  Tensors own{at::full({1}, rank_in_whole, at::kInt)};
  std::vector<Tensors> all{{}};
  for (int rank = 0; rank < part->getSize(); ++rank) all[0].push_back(at::zeros({1}, at::kInt));
  part->allgather(all, own)->wait();
  std::vector<int> members;
  for (const at::Tensor& one : all[0]) members.push_back(one.item<int>());
  return members;
}

float sum_in(const Group& part, float value) {
  Tensors data{at::full({1000}, value)};
  part->allreduce(data)->wait();
  return data[0][999].item<float>();
}

}  // namespace

void parts_of_a_group(const Group& group) {
  const int me = group->getRank(), world = group->getSize();

  // Every second rank, which are some of each host, and the others.
  const Group halves = split(group, me % 2, 0);
  std::vector<int> half;
  for (int rank = me % 2; rank < world; rank += 2) half.push_back(rank);
  require(members_of(halves, me) == half, "the members of a color");

  // The keys turn the order around, over the hosts.
  const Group turned = split(group, 5, -me);
  std::vector<int> backwards;
  for (int rank = world - 1; rank >= 0; --rank) backwards.push_back(rank);
  require(members_of(turned, me) == backwards, "the order of keys");
  require(turned->getRank() == world - 1 - me, "a rank by keys");
  Tensors from_first{at::full({5}, float(me))};
  turned->broadcast(from_first)->wait();
  require(from_first[0][4].item<float>() == float(world - 1), "a broadcast in a part");

  // A list without the first rank; who is not in it gets nothing.
  std::vector<int> list;
  for (int rank = world - 1; rank > 0; --rank) list.push_back(rank);
  const Group rest = new_group(group, list);
  require((rest == nullptr) == (me == 0), "who is a member");
  if (rest) require(rest->getSize() == world - 1 && rest->getRank() == me - 1, "ranks of a list");

  // Only this rank: a part on one host.
  const Group alone = split(group, me, 0);
  require(alone->getSize() == 1 && sum_in(alone, 3) == 3, "a part of one");

  // Two parts of one process at once, in two threads.
  float in_half = 0, in_turned = 0;
  std::thread other([&] {
    for (int round = 0; round < 20; ++round) in_half += sum_in(halves, 1);
  });
  for (int round = 0; round < 20; ++round) in_turned += sum_in(turned, 1);
  other.join();
  require(in_half == 20 * float(half.size()) && in_turned == 20 * float(world), "parts side by side");
  if (rest) require(sum_in(rest, 2) == 2 * float(world - 1), "a part beside its parent's others");

  // A part of a part, which outlives it.
  Group small;
  {
    const Group between = split(group, 1, 0);
    small = split(between, me < 2 ? 0 : 1, 0);
  }
  require(sum_in(small, 1) == float(me < 2 ? 2 : world - 2), "a part of a part");

  // Lists that do not agree: all are told who does not.
  std::string said = "nothing";
  try {
    new_group(group, me == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, world - 1});
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  require(said.starts_with("split: rank 0 ") && said.find("rank 1") != std::string::npos,
          "what lists that do not agree are told: " + said);
  require(sum_in(group, 1) == float(world), "the whole group after all");
}

void work_under_way(const Group& group, const Group& second) {
  const int me = group->getRank(), world = group->getSize();
  Tensors data{at::ones({100'000})}, more{at::full({10}, 2.f)};
  c10::intrusive_ptr<c10d::Work> work, next;
  if (me != world - 1) {
    work = group->allreduce(data);
    next = group->allreduce(more);
    require(!work->isCompleted() && !next->isCompleted(), "work that needs a rank which has not come");
  }
  second->barrier(c10d::BarrierOptions())->wait();  // the others have returned from their calls
  if (me == world - 1) {
    work = group->allreduce(data);
    next = group->allreduce(more);
  }
  const auto future = next->getFuture();
  work->wait();
  future->wait();
  require(data[0][99'999].item<float>() == float(world) && more[0][9].item<float>() == 2 * float(world),
          "sums that were under way");
  require(work->isCompleted() && work->isSuccess() && next->isCompleted(), "work that is over");

  // What goes wrong comes out of wait() and of the future, not of the call.
  Tensors unequal{at::ones({me == 0 ? 4 : 5})};
  const auto wrong = group->allreduce(unequal);
  std::string said = "nothing";
  try {
    wrong->wait();
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  require(said.find("rank 0 (host ") != std::string::npos, "an exception at wait(): " + said);
  require(wrong->isCompleted() && !wrong->isSuccess() && wrong->exception() != nullptr, "work that went wrong");
  require(wrong->getFuture()->hasError(), "the future of work that went wrong");

  // Several at once, under one handle.
  const auto backend = group->getBackend(c10::kCPU);
  backend->startCoalescing();
  Tensors first{at::ones({7})}, last{at::ones({9})};
  backend->allreduce(first);
  backend->allreduce(last);
  backend->endCoalescing()->wait();
  require(first[0][6].item<float>() == float(world) && last[0][8].item<float>() == float(world), "coalesced sums");
}

}  // namespace shoal::test
