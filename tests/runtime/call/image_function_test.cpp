#include <shoal/internal/runtime/call/image_function.h>

#include <shoal/ipc/error.h>
#include <sys/mman.h>

#include <cstdlib>

#include "tests/support/catch.h"

namespace shoal {
namespace {

int own_function(int x) { return x + 1; }

template <class F>
AnyFunction erase(F* function) {
  return reinterpret_cast<AnyFunction>(function);
}

TEST_CASE("image function: a function of the program is found again by its name") {
  const ImageFunction name = name_function(erase(&own_function));
  CHECK(name.build_id.size() >= 16);
  const AnyFunction found = find_function(name);
  CHECK(found == erase(&own_function));
  CHECK(reinterpret_cast<int (*)(int)>(found)(41) == 42);
}

TEST_CASE("image function: a function of a shared library is named by that library") {
  const ImageFunction name = name_function(erase(&std::abort));
  CHECK(name.build_id != name_function(erase(&own_function)).build_id);
  CHECK_THAT(name.image, ContainsSubstring(".so"));
  CHECK(find_function(name) == erase(&std::abort));
}

TEST_CASE("image function: another build is refused") {
  ImageFunction name = name_function(erase(&own_function));
  name.build_id[0] = name.build_id[0] == 'a' ? 'b' : 'a';
  CHECK_THROWS_WITH(find_function(name), ContainsSubstring("another build") && ContainsSubstring(name.build_id));
}

TEST_CASE("image function: an offset outside the image's code is refused") {
  ImageFunction name = name_function(erase(&own_function));
  name.offset = 1ull << 40;
  CHECK_THROWS_AS(find_function(name), Error);
}

TEST_CASE("image function: code made at run time has no name") {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  CHECK_THROWS_WITH(name_function(reinterpret_cast<AnyFunction>(page)), ContainsSubstring("made at run time"));
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace shoal
