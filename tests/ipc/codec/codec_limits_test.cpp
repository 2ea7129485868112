// What a codec refuses: values nested too deep at the sender, and messages whose counts promise more than they hold.
#include <shoal/ipc/codec.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <sys/resource.h>

#include <limits>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

struct NoMembers {
  auto operator<=>(const NoMembers&) const = default;
};
struct Node {
  int value;
  std::unique_ptr<Node> next;
};

/// A question that brings the queue for its answer, itself able to carry questions.
struct Question {
  int number;
  Queue<Question> answers;
};

std::unique_ptr<Node> list_of(int nodes) {
  std::unique_ptr<Node> head;
  for (int i = 0; i < nodes; ++i) head = std::make_unique<Node>(Node{i, std::move(head)});
  return head;
}
/// Without recursion, which a long list would not survive.
void destroy(std::unique_ptr<Node>& list) {
  while (list) list = std::move(list->next);
}

template <class T>
void refuse(std::vector<std::uint64_t> words) {
  Decoder decoder(std::as_bytes(std::span(words)), {});
  CHECK_THROWS_AS(decode<T>(decoder), DecodeError);
}

/// The largest resident size of this process so far, in bytes.
std::size_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::size_t(usage.ru_maxrss) * 1024;
}

}  // namespace

TEST_CASE("codec: a value nested deeper than the limit is refused at the sender, who is told what to do") {
  // Each node is two levels: the pointer and what it points to.
  auto longest = list_of(kDeepestNesting / 2 - 1);
  Encoder encoder;
  encode(encoder, longest);
  Decoder decoder(encoder.bytes(), {});
  auto copy = decode<std::unique_ptr<Node>>(decoder);
  CHECK(copy->next->value == longest->next->value);

  for (int nodes : {kDeepestNesting / 2 + 1, 1'000'000}) {
    auto list = list_of(nodes);
    Encoder refusing;
    CHECK_THROWS_WITH(encode(refusing, list),
                      ContainsSubstring("nested deeper than 256 levels") && ContainsSubstring("std::vector of nodes"));
    // The encoder can be used again: the levels are back at none.
    CHECK_NOTHROW(encode(refusing, longest));
    destroy(list);
  }
}

TEST_CASE("codec: a message nested deeper than the limit is refused by the receiver") {
  Encoder encoder;
  for (int i = 0; i < 100'000; ++i) {
    encoder.write(std::uint8_t(1));
    encoder.write(std::int32_t(i));
  }
  Decoder decoder(encoder.bytes(), {});
  CHECK_THROWS_WITH((decode<std::unique_ptr<Node>>(decoder)), ContainsSubstring("256 levels"));
}

TEST_CASE("codec: a count is never believed beyond the bytes that are left, whatever the elements are") {
  const std::uint64_t many = std::numeric_limits<std::uint64_t>::max();
  for (std::uint64_t count : {std::uint64_t(17), std::uint64_t(1) << 20, many / 8 + 1, many}) {
    refuse<std::vector<NoMembers>>({count, 0, 0});
    refuse<std::vector<std::monostate>>({count, 0, 0});
    refuse<std::list<std::tuple<>>>({count, 0, 0});
    refuse<std::deque<std::array<int, 0>>>({count, 0, 0});
    refuse<std::vector<char>>({count, 0, 0});
    refuse<std::vector<double>>({count, 0, 0});
    refuse<std::u32string>({count, 0, 0});
    refuse<std::map<NoMembers, NoMembers>>({count, 0, 0});
    refuse<std::unordered_map<int, NoMembers>>({count, 0, 0});
  }
  refuse<std::vector<bool>>({129, 0, 0});
  refuse<std::vector<bool>>({many, 0, 0});
}

TEST_CASE("codec: counts of empty elements inside each other allocate no more than the message is long") {
  const std::size_t before = peak_bytes();
  std::vector<std::uint64_t> words(100'000, 1u << 20);
  words[0] = words.size() - 1;
  refuse<std::vector<std::vector<NoMembers>>>(words);
  refuse<std::vector<std::list<std::vector<std::monostate>>>>(words);
  CHECK(peak_bytes() - before < 64u << 20);
}

TEST_CASE("codec: elements without bytes of their own come back in their number") {
  Encoder encoder;
  encode(encoder, std::vector<NoMembers>(5));
  encode(encoder, std::list<std::tuple<>>(3));
  encode(encoder, std::vector<std::vector<std::monostate>>{{}, {{}, {}}});
  Decoder decoder(encoder.bytes(), {});
  CHECK(decode<std::vector<NoMembers>>(decoder).size() == 5);
  CHECK(decode<std::list<std::tuple<>>>(decoder).size() == 3);
  CHECK(decode<std::vector<std::vector<std::monostate>>>(decoder).at(1).size() == 2);
  decoder.finish();
}

TEST_CASE("codec: bits that no value has are refused") {
  std::uint8_t byte = 0x80;
  Decoder bitset(std::as_bytes(std::span(&byte, 1)), {});
  CHECK_THROWS_AS(decode<std::bitset<7>>(bitset), DecodeError);
  refuse<std::vector<bool>>({60, std::uint64_t(1) << 60});
}

TEST_CASE("codec: a queue of messages that carry such a queue") {
  Queue<Question> questions(2);
  {
    Queue<Question> answers(2);
    questions.put({1, answers});
    Question asked = questions.get();
    asked.answers.put({asked.number + 1, Queue<Question>(1)});
    CHECK(answers.get().number == 2);
  }
}

TEST_CASE("codec: a message in a ring whose handle is the hold on its own block is refused, and freed once") {
  const std::size_t before = heap_bytes_in_use();
  {
    Ring ring = Ring::create(1, 5);
    Encoder message;
    encode(message, std::string(1000, 'x'));
    message.add(allocate_shared(64));
    const HoldRef handle = message.handles()[0];
    REQUIRE(ring.put(message, Deadline::now()) == RingStatus::kDone);
    RingCell& cell = reinterpret_cast<RingLayout*>(ring.hold().data())->cells()[0];
    HoldRef block;
    std::memcpy(&block, cell.contents, sizeof block);
    std::byte* bytes = Session::current().heap().memory().payload(block.block);
    std::memcpy(bytes + Encoder::handles_at(cell.size), &block, sizeof block);
    Received received;
    CHECK_THROWS_AS(ring.get(received, Deadline::now()), DecodeError);
    // What the message lost of its own by that is still there, once.
    CHECK(heap_bytes_in_use() > before);
    for (const HoldRef& ref : {handle, block}) Hold::from_transit(ref).release();
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("codec: of many handles, and of many things that are met again, each has one number") {
  constexpr std::uint32_t kMany = 5000;
  std::vector<Hold> holds;
  for (std::uint32_t i = 0; i < kMany; ++i) holds.push_back(allocate_shared(64));
  int dropped = 0;
  {
    Encoder encoder;
    for (std::uint32_t i = 0; i < kMany; ++i) {
      REQUIRE(encoder.add(holds[i]) == i);
      encoder.note_added(&holds[i], i, Kept(&dropped, [](void* count) { ++*static_cast<int*>(count); }));
      REQUIRE(encoder.find_added(&holds[i]) == i);
    }
    for (std::uint32_t i = 0; i < kMany; i += 7) REQUIRE(encoder.add(holds[i]) == i);
    CHECK(encoder.handles().size() == kMany);
    CHECK(encoder.find_added(&holds[3]) == 3);
    CHECK_FALSE(encoder.find_added(&encoder).has_value());
    CHECK(dropped == 0);
  }
  CHECK(dropped == int(kMany));
}

TEST_CASE("codec: what is kept is dropped once, by whoever has it last") {
  int dropped = 0;
  auto drop = [](void* count) { ++*static_cast<int*>(count); };
  {
    Kept first(&dropped, drop), second;
    CHECK(first);
    CHECK_FALSE(second);
    second = std::move(first);
    CHECK(second.get() == &dropped);
    Kept third(std::move(second));
    CHECK_FALSE(second);
    CHECK(dropped == 0);
  }
  CHECK(dropped == 1);
}
