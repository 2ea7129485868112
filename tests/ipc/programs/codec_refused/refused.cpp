// What cannot cross between processes, one CASE at a time; the compiler's message names the type, the member, and the
// remedy. CASE 0 is what does compile.
#include <shoal/ipc/dict.h>
#include <shoal/ipc/queue.h>

#include <cstdio>
#include <mutex>
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
struct TooLarge {
  char text[600];
};

template <class T>
void cross(shoal::Encoder& encoder, shoal::Decoder& decoder) {
  static_assert(shoal::schema_of<T>() != 0);
  shoal::encode(encoder, shoal::decode<T>(decoder));
}

void test(shoal::Encoder& encoder, shoal::Decoder& decoder) {
#if CASE == 0
  cross<std::vector<std::unique_ptr<std::string>>>(encoder, decoder);
  cross<NoDefault>(encoder, decoder);
#elif CASE == 1
  cross<std::mutex>(encoder, decoder);
#elif CASE == 2
  cross<WithLock>(encoder, decoder);
#elif CASE == 3
  cross<Outer>(encoder, decoder);
#elif CASE == 4
  cross<std::vector<int*>>(encoder, decoder);
#elif CASE == 5
  cross<std::shared_ptr<std::string>>(encoder, decoder);
#elif CASE == 6
  cross<std::string_view>(encoder, decoder);
#elif CASE == 7
  cross<std::span<const float>>(encoder, decoder);
#elif CASE == 8
  cross<ArrayAndNoDefault>(encoder, decoder);
#elif CASE == 9
  cross<TooLarge>(encoder, decoder);
#elif CASE == 10
  shoal::Queue<WithPointer> queue(3);
#elif CASE == 11
  shoal::Dict<long double, int> dict;
#elif CASE == 12
  shoal::Dict<std::unordered_set<int>, int> dict;
#endif
}
