// What cannot cross between processes: the compiler's message names the type, the member, and the remedy.
#include <shoal/ipc/arena.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/queue.h>

#include <array>
#include <boost/container/vector.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_set>

struct WithLock {
  int number;
  std::mutex mutex;
};
struct WithPointer {
  std::string name;
  int count;
  std::FILE* file;
};
struct WithOtherPointer {
  std::string name;
  int count;
  std::FILE* file;
};
struct Outer {
  int number;
  std::vector<WithPointer> inner;
};
struct NoDefault {
  explicit NoDefault(int);
};
template <>
struct shoal::Codec<NoDefault> {
  static constexpr std::uint64_t schema() { return 1; }
  static void encode(Encoder&, const NoDefault&) {}
  static NoDefault decode(Decoder&) { return NoDefault(1); }
};
struct ArrayAndNoDefault {
  int numbers[3];
  NoDefault other;
};
/// A key that is nobody's: its books' order is that of their hashes.
struct Titles {
  std::string owner;
  std::unordered_map<std::string, int> books;
};
/// A key whose type contains itself.
struct Path {
  int step;
  std::unique_ptr<Path> rest;
};
/// Orders and hashes by what it was made with.
struct Seeded {
  int seed = 0;
  bool operator()(int a, int b) const { return (a ^ seed) < (b ^ seed); }
  std::size_t operator()(int a) const { return std::size_t(a ^ seed); }
};
using Numbers = boost::container::vector<int, shoal::ArenaAllocator<int>>;
struct TooLarge {
  char text[600];
};

template <class T>
void cross(shoal::Encoder& encoder, shoal::Decoder& decoder) {
  static_assert(shoal::schema_of<T>() != 0);
  shoal::encode(encoder, shoal::decode<T>(decoder));
}

void crosses(shoal::Encoder& encoder, shoal::Decoder& decoder) {
  shoal::Dict<Path, int> by_path;
  shoal::Dict<std::map<std::string, std::array<double, 3>, std::greater<>>, int> by_map;
  shoal::Queue<std::unordered_map<int, int, std::hash<int>>> of_maps(3);
  shoal::Arena<Numbers>().change([](Numbers& numbers) { return numbers.size(); });
  cross<std::vector<std::unique_ptr<std::string>>>(encoder, decoder);
  cross<NoDefault>(encoder, decoder);
}

void refused([[maybe_unused]] shoal::Encoder& encoder, [[maybe_unused]] shoal::Decoder& decoder) {
#if REFUSED == 1
  // refused: NotEncodable<std::mutex>.*this type .T above. cannot cross
  cross<std::mutex>(encoder, decoder);
  // refused: MemberNotEncodable<WithLock, std::mutex, 1>.*member number Index .from 0., of type Member, keeps Aggregate
  cross<WithLock>(encoder, decoder);
  // refused: MemberNotEncodable<WithPointer, .*FILE.*, 2>.*keeps Aggregate from crossing
  cross<Outer>(encoder, decoder);
  // refused: a pointer .to T above. means nothing in another process
  cross<std::vector<int*>>(encoder, decoder);
  // refused: a std::shared_ptr .of T above. cannot cross.*send a std::unique_ptr
  cross<std::shared_ptr<std::string>>(encoder, decoder);
  // refused: a std::string_view cannot cross.*send a std::string
  cross<std::string_view>(encoder, decoder);
  // refused: a std::span .of T above. cannot cross.*send a std::vector
  cross<std::span<const float>>(encoder, decoder);
  // refused: an aggregate with a C array among its members.*need a default
  cross<ArrayAndNoDefault>(encoder, decoder);
  // refused: more than 512 members and elements of C arrays
  cross<TooLarge>(encoder, decoder);
  // refused: MemberNotEncodable<WithOtherPointer, .*FILE.*, 2>
  shoal::Queue<WithOtherPointer> queue(3);
  // refused: equal keys of this type .K above.*may be encoded to other bytes
  shoal::Dict<long double, int> by_long_double;
  // refused: equal keys of this type .K above.*may be encoded to other bytes
  shoal::Dict<std::unordered_set<int>, int> by_set;
  // refused: equal keys of this type .K above.*may be encoded to other bytes
  shoal::Dict<std::vector<std::optional<long double>>, int> by_long_doubles;
  // refused: equal keys of this type .K above.*may be encoded to other bytes
  shoal::Dict<Titles, int> by_titles;
  // refused: orders or hashes by has a state, which does not cross
  shoal::Queue<std::set<int, bool (*)(int, int)>> of_sets(3);
  // refused: orders or hashes by has a state, which does not cross
  shoal::Queue<std::map<int, int, Seeded>> of_maps(3);
  // refused: orders or hashes by has a state, which does not cross
  shoal::Queue<std::unordered_map<int, int, Seeded>> of_hashes(3);
  // refused: change.. cannot return a container with an ArenaAllocator
  shoal::Arena<Numbers>().change([](Numbers& numbers) { return numbers; });
#endif
}
