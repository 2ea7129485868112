#include "tests/hosts/programs/rank/messages.h"

#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/process_group_objects.h>
#include <shoal/workers/train/process_group_parts.h>
#include <unistd.h>

#include <map>
#include <string>
#include <thread>

namespace shoal::test {
namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

/// More than goes with a message, and than one read brings.
constexpr std::int64_t kLarge = 3 << 18;

Tensors filled(std::int64_t count, int value) { return {at::full({count}, value, at::kInt)}; }

bool is_all(const at::Tensor& tensor, int value) { return at::equal(tensor, at::full_like(tensor, value)); }

/// All pairs at once, in both directions; the receives begin before or after the sends.
void between_all(const Group& group, std::int64_t count, bool shared, bool receive_first) {
  const int me = group->getRank(), world = group->getSize();
  std::vector<Tensors> out, in;
  for (int other = 0; other < world; ++other) {
    out.push_back(filled(count, 100 * me + other));
    in.push_back(filled(count, -1));
    if (shared) share_memory_(out.back()[0]);
  }
  Works works;
  auto receive = [&] {
    for (int other = 0; other < world; ++other)
      if (other != me) works.push_back(group->recv(in[std::size_t(other)], other, 7));
  };
  if (receive_first) receive();
  for (int other = 0; other < world; ++other)
    if (other != me) works.push_back(group->send(out[std::size_t(other)], other, 7));
  if (!receive_first) receive();
  for (const auto& work : works) work->wait();
  for (int other = 0; other < world; ++other)
    if (other != me)
      require(is_all(in[std::size_t(other)][0], 100 * other + me),
              fmt::format("a message of {} numbers from rank {}", count, other));
}

void by_tags(const Group& group) {
  const int me = group->getRank(), world = group->getSize();
  const int next = (me + 1) % world, before = (me + world - 1) % world;
  Works works;
  std::vector<Tensors> out{filled(3, 1), filled(4, 2), filled(3, 3), filled(kLarge, 4)};
  const std::vector<int> tags{1, 2, 1, 3};
  for (std::size_t i = 0; i < out.size(); ++i) works.push_back(group->send(out[i], next, tags[i]));
  Tensors large = filled(kLarge, 0), second = filled(4, 0), first = filled(3, 0), third = filled(3, 0);
  group->recv(large, before, 3)->wait();
  group->recv(second, before, 2)->wait();
  group->recv(first, before, 1)->wait();
  group->recv(third, before, 1)->wait();
  require(is_all(large[0], 4) && is_all(second[0], 2) && is_all(first[0], 1) && is_all(third[0], 3),
          "messages by their tags");
  for (const auto& work : works) work->wait();
}

/// Rank 0 gets one from each, in the order in which they come, of its host and others.
void from_any(const Group& group, std::int64_t count) {
  const int tag = count == kLarge ? 10 : 9;  // a quick rank's next message is not taken for a slow one's first
  const int me = group->getRank(), world = group->getSize();
  if (me != 0) {
    Tensors own = filled(count, me);
    group->send(own, 0, tag)->wait();
    return;
  }
  std::vector<bool> came(std::size_t(world), false);
  for (int i = 1; i < world; ++i) {
    Tensors data = filled(count, 0);
    const auto work = group->recvAnysource(data, tag);
    work->wait();
    const int from = work->sourceRank();
    require(from > 0 && from < world && !came[std::size_t(from)], fmt::format("who has sent: {}", from));
    require(is_all(data[0], from), "what any rank has sent");
    came[std::size_t(from)] = true;
  }
}

using Value = std::map<std::string, std::vector<at::Tensor>>;

void values(const Group& group) {
  const int me = group->getRank(), world = group->getSize();
  const int next = (me + 1) % world, before = (me + world - 1) % world;
  const at::Tensor one = at::arange(1000, at::kFloat) + float(me);
  Value value{{"private", {one, one.narrow(0, 10, 5)}}, {"shared", {share_memory_(one.clone())}}, {"none", {}}};
  send_object(group, value, next, 4);
  send_object(group, std::string(100'000, char('a' + me)), next, 4);
  const auto got = recv_object<Value>(group, before, 4);
  const at::Tensor expected = at::arange(1000, at::kFloat) + float(before);
  require(got.size() == 3 && at::equal(got.at("private")[0], expected) &&
              at::equal(got.at("private")[1], expected.narrow(0, 10, 5)) && at::equal(got.at("shared")[0], expected),
          "a value with tensors");
  require(recv_object<std::string>(group, before, 4) == std::string(100'000, char('a' + before)), "a long text");

  // Another type than was sent: the value stays for who asks for it.
  send_object(group, me, next, 5);
  std::string said = "nothing";
  try {
    recv_object<std::string>(group, before, 5);
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  require(said.find(fmt::format("rank {} has sent a value of type int", before)) != std::string::npos, said);
  require(recv_object<int>(group, before, 5) == before, "a value that was asked for as another type");

  if (me == 0) {
    int sum = 0;
    for (int i = 1; i < world; ++i) {
      const auto [number, from] = recv_object_anysource<int>(group, 6);
      require(number == 10 * from, "a value of any rank");
      sum += from;
    }
    require(sum == world * (world - 1) / 2, "values of all ranks");
  } else {
    send_object(group, 10 * me, 0, 6);
  }
}

/// What lies in the memory of one host cannot go to another.
void of_one_host(const Group& group, bool several_hosts) {
  const int me = group->getRank(), last = group->getSize() - 1;
  if (me == 0) {
    std::string said = "nothing";
    try {
      send_object(group, Queue<int>(), last, 8);
    } catch (const std::invalid_argument& error) {
      said = error.what();
    }
    require((said.find("stays on its host") != std::string::npos) == several_hosts, said);
    send_object(group, 1, last, 8);
  }
  if (me == last) {
    if (!several_hosts) recv_object<Queue<int>>(group, 0, 8);
    require(recv_object<int>(group, 0, 8) == 1, "a value after one that stays");
  }
}

void that_do_not_fit(const Group& group) {
  const int me = group->getRank(), last = group->getSize() - 1;
  for (const std::int64_t count : {std::int64_t(5), kLarge}) {
    if (me == 0) {
      Tensors own = filled(count, 3);
      group->send(own, last, 1)->wait();
    } else if (me == last) {
      Tensors shorter = filled(4, 0), whole = filled(count, 0);
      std::string said = "nothing";
      try {
        group->recv(shorter, 0, 1)->wait();
      } catch (const std::invalid_argument& error) {
        said = error.what();
      }
      require(said.find(fmt::format("rank 0 has sent {} bytes of Int", 4 * count)) != std::string::npos, said);
      group->recv(whole, 0, 1)->wait();
      require(is_all(whole[0], 3), "a message that stayed for a receive that fits");
    }
  }
}

/// A receive and a send that nobody answers end at their time-out, and what comes later goes on.
void that_nobody_takes(const Group& group) {
  const int me = group->getRank(), last = group->getSize() - 1;
  auto is_late = [](const c10::intrusive_ptr<c10d::Work>& work) {
    try {
      work->wait(std::chrono::milliseconds(50));
    } catch (const TimeoutError&) {
      return true;
    }
    return false;
  };
  Tensors unwanted = filled(kLarge, 1), wanted = filled(kLarge, 2), got = filled(kLarge, 0);
  if (me == last) require(is_late(group->recv(got, 0, 2)), "a receive of nothing");
  group->barrier(c10d::BarrierOptions())->wait();
  if (me == 0) require(is_late(group->send(unwanted, last, 2)), "a send that nobody receives");
  group->barrier(c10d::BarrierOptions())->wait();
  if (me == (last > 1 ? 1 : 0)) group->send(wanted, last, 2)->wait();
  if (me == last) {
    // From any: what was taken back does not bind it to who sent that.
    group->recvAnysource(got, 2)->wait();
    require(is_all(got[0], 2), "what was sent after a send that was taken back");
  }
}

/// A thread that sends and receives, another one that does collectives.
void beside_collectives(const Group& group) {
  const int world = group->getSize();
  std::thread other([&] {
    for (int round = 0; round < 10; ++round) between_all(group, round % 2 == 0 ? 10 : kLarge, false, round % 3 == 0);
  });
  float sum = 0;
  for (int round = 0; round < 20; ++round) {
    Tensors data{at::ones({1000})};
    group->allreduce(data)->wait();
    sum += data[0][999].item<float>();
  }
  other.join();
  require(sum == 20 * float(world), "sums beside messages");
}

void barriers_that_name(const Group& group) {
  const int me = group->getRank(), world = group->getSize();
  c10d::BarrierOptions options;
  options.timeout = std::chrono::seconds(60);
  group->monitoredBarrier(options, true);
  options.timeout = std::chrono::milliseconds(300);
  std::string said = "nothing";
  if (me != world - 1) {
    try {
      group->monitoredBarrier(options, true);
    } catch (const TimeoutError& error) {
      said = error.what();
    }
    require(said.find(fmt::format("rank {} did not come", world - 1)) != std::string::npos, said);
  }
  group->barrier(c10d::BarrierOptions())->wait();
  if (me == world - 1) {
    try {
      group->monitoredBarrier(options, true);  // all learn of it, also who comes late
    } catch (const TimeoutError& error) {
      said = error.what();
    }
    require(said.find("did not come") != std::string::npos, said);
  }
}

}  // namespace

void messages(const Group& group) {
  const bool several_hosts = group->getBackendName() == "shm+gloo";
  for (const std::int64_t count : {std::int64_t(0), std::int64_t(5), std::int64_t(50'000), kLarge})
    for (const bool shared : {false, true})
      for (const bool receive_first : {false, true}) between_all(group, count, shared, receive_first);
  by_tags(group);
  from_any(group, 5);
  from_any(group, kLarge);
  values(group);
  of_one_host(group, several_hosts);
  that_do_not_fit(group);
  that_nobody_takes(group);
  beside_collectives(group);
  barriers_that_name(group);
  group->barrier(c10d::BarrierOptions())->wait();
}

void messages_while_others_wait(const Group& group) {
  const int me = group->getRank();
  const Group column = split(group, me % 2, 0);  // a rank of each host
  // None: a message in place of a sum. The large sum is carried by Gloo, the small one by a line.
  for (const std::int64_t count : {std::int64_t(0), std::int64_t(5), std::int64_t(1) << 20}) {
    Tensors large = filled(kLarge, me == 0 ? 9 : 0), word = filled(1, me == 1 ? 3 : 0);
    Tensors sum = filled(std::max<std::int64_t>(count, 1), me + 1);
    c10::intrusive_ptr<c10d::Work> under_way;
    if (me == 0) under_way = group->send(large, 1, 7);
    if (me == 1) {
      group->recv(large, 0, 7)->wait();
      require(is_all(large[0], 9), "a message that its sender had not waited for");
      group->send(word, 2, 8)->wait();
    }
    if (me == 2) {
      group->recv(word, 1, 8)->wait();
      require(is_all(word[0], 3), "a word between hosts");
    }
    if (count != 0) {
      column->allreduce(sum)->wait();
      require(is_all(sum[0], me % 2 == 0 ? 4 : 6), "a sum between hosts");
    } else if (me == 0) {
      column->recv(sum, 1, 9)->wait();
      require(is_all(sum[0], 3), "a message of another group");
    } else if (me == 2) {
      column->send(sum, 0, 9)->wait();
    }
    if (under_way) under_way->wait();
  }
  group->barrier(c10d::BarrierOptions())->wait();
}

void messages_of_one_that_leaves(Group group) {
  const int me = group->getRank(), last = group->getSize() - 1;
  if (me == last) {
    // Sent before it leaves, so it arrives: more than any buffer of the kernel holds.
    for (int other = 0; other < last; ++other) send_object(group, std::string(20 << 20, 'x'), other, 1);
    return;
  }
  require(recv_object<std::string>(group, last, 1) == std::string(20 << 20, 'x'), "what one sent before it left");
  std::string said = "nothing";
  try {
    recv_object<std::string>(group, last, 1);
  } catch (const PeerDied& error) {
    said = error.what();
  }
  require(
      said.find(fmt::format("rank {} ", last)) != std::string::npos && said.find("left the group") != std::string::npos,
      said);
}

void wait_for_the_last(const Group& group, void (*say_ready)()) {
  if (group->getRank() == group->getSize() - 1) {
    say_ready();
    ::pause();
  }
  say_ready();
  recv_object<int>(group, group->getSize() - 1);
}

}  // namespace shoal::test
