#include <shoal/runtime/options.h>

#include <memory>

#include "tests/runtime/configure/settings.h"
#include "tests/support/catch.h"

using namespace shoal;
using namespace shoal::config;

namespace {

enum class Signed : signed char { below = -3, zero = 0, high = 100 };
enum class Unsigned : std::uint8_t { first, last = 127 };
struct Hidden {
  int one;
  Signed two_2;
};
template <class T, class U>
struct Step {
  T in_template;
};
struct MoveOnly {
  std::unique_ptr<int> pointer;
  char text[4];
  double numbers[2][3];
};
struct Recursive {
  int value;
  std::vector<Recursive> more;
};
struct Forty {
  int a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20;
  int a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40;
};

template <class E>
std::vector<std::string> names_of() {
  return kind_of<E>().choices();
}

}  // namespace

TEST_CASE("configure names: members have the names of the source") {
  STATIC_REQUIRE(member_name<Hidden, 0>() == "one");
  STATIC_REQUIRE(member_name<Hidden, 1>() == "two_2");
  STATIC_REQUIRE(member_name<Step<int, std::pair<char, bool>>, 0>() == "in_template");
  STATIC_REQUIRE(member_name<MoveOnly, 0>() == "pointer");
  STATIC_REQUIRE(member_name<MoveOnly, 1>() == "text");
  STATIC_REQUIRE(member_name<MoveOnly, 2>() == "numbers");
  STATIC_REQUIRE(member_name<Recursive, 1>() == "more");
  STATIC_REQUIRE(member_name<Forty, 0>() == "a1");
  STATIC_REQUIRE(member_name<Forty, 39>() == "a40");
  STATIC_REQUIRE(member_name<SpawnOptions, 1>() == "start_method");
  struct Local {
    int in_function;
  };
  STATIC_REQUIRE(member_name<Local, 0>() == "in_function");
}

TEST_CASE("configure names: enumerators have the names of the source, from the least to the largest value") {
  CHECK(names_of<Signed>() == std::vector<std::string>{"below", "zero", "high"});
  CHECK(names_of<Unsigned>() == std::vector<std::string>{"first", "last"});
  CHECK(names_of<test::Mode>() == std::vector<std::string>{"single", "ddp", "hogwild"});
  CHECK(names_of<StartMethod>() == std::vector<std::string>{"spawn", "forkserver", "fork"});
}

TEST_CASE("configure names: types are named without their namespaces") {
  STATIC_REQUIRE(type_name_of<test::Adam>() == "Adam");
  STATIC_REQUIRE(type_name_of<Hidden>() == "Hidden");
  STATIC_REQUIRE(type_name_of<Step<int, char>>() == "Step<int, char>");
}
