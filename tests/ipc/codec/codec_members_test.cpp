#include <shoal/internal/ipc/codec/members.h>
#include <shoal/ipc/queue.h>

#include <any>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "tests/support/catch.h"

using shoal::kMembersOf;
using shoal::MemberOf;
using shoal::members_of;

namespace {

struct Handle {  // without a default, as shoal's own
  explicit Handle(int) {}
  std::shared_ptr<int> pointer;
};
struct Settings {
  std::string mode = "all";
  int count = 3;
  double rate = 0.5;
  std::vector<int> list{};
};
// Of some hundred bytes and not default constructible: to be counted in no time.
struct Job {
  std::string mode;
  Settings first, second, third, fourth, fifth;
  shoal::Queue<std::string> queue;
  Handle last;
};
struct MemberOfNothing {};
struct OneSettings {
  Settings settings;
};
struct Arrays {
  std::array<std::string, 2> strings;
  std::array<int, 3> numbers;
};
struct MoveOnly {
  std::unique_ptr<int> pointer;
  Handle handle;
};
struct Greedy {  // members that are constructible from anything
  std::any any;
  std::function<void()> function;
  std::optional<std::any> optional;
  std::variant<std::monostate, std::string> variant;
};
struct Constant {
  const std::string text;
  const int number;
};
struct Defaults {
  MemberOfNothing empty;
  Handle handle;
  bool last = false;
};
struct Recursive {
  std::map<std::string, Recursive> children;
  std::unique_ptr<Recursive> next;
};
struct Forty {
  char a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t;
  long aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, at, au;
};

static_assert(kMembersOf<Job> == 8);
static_assert(kMembersOf<const Job> == 8);
static_assert(kMembersOf<MemberOfNothing> == 0);
static_assert(kMembersOf<OneSettings> == 1);
static_assert(kMembersOf<Arrays> == 2);
static_assert(kMembersOf<MoveOnly> == 2);
static_assert(kMembersOf<Greedy> == 4);
static_assert(kMembersOf<Constant> == 2);
static_assert(kMembersOf<Defaults> == 3);
static_assert(kMembersOf<Recursive> == 2);
static_assert(kMembersOf<Forty> == 40);
static_assert(std::is_same_v<MemberOf<6, Job>, shoal::Queue<std::string>>);
static_assert(std::is_same_v<MemberOf<0, Constant>, std::string>);

}  // namespace

TEST_CASE("codec: the members of an aggregate are reached in order, by reference") {
  Settings settings{"x", 7, 1.5, {1, 2}};
  std::get<1>(members_of(settings)) = 8;
  CHECK(settings.count == 8);
  const Settings& constant = settings;
  CHECK(&std::get<3>(members_of(constant)) == &settings.list);

  Forty forty{};
  std::get<39>(members_of(forty)) = 5;
  CHECK(forty.au == 5);
}
