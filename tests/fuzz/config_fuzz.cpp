// Fuzz target: a configuration's file, or an argument, is hostile. The first byte says which. What is read is printed as a file that
// reads back as the same file.
#include <shoal/runtime/configure.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace shoal;

namespace {

enum class Colour { red, blue };
struct Leaf {
  int number = 0;
  std::optional<std::string> text = {};
  std::chrono::nanoseconds time = {};
  std::size_t bytes = 0;

  static constexpr OptionText kTexts[] = {{"bytes", "many", {.unit = "bytes"}}};
};
struct Tree {
  std::string name;
  std::variant<Leaf, std::vector<double>, bool, std::string> any = {};
  std::map<std::string, Colour> colours = {};
  std::vector<Tree> more = {};
  Leaf leaf = {};
  std::int8_t small = 0;
  std::int64_t large = 0;
  float real = 0;
  std::chrono::duration<double> seconds = {};
  std::map<int, bool> flags = {};
  std::vector<bool> bits = {};
  std::array<std::optional<bool>, 2> two = {};
  std::optional<Leaf> perhaps = {};
  std::vector<std::pair<int, std::string>> pairs = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const Tree tree = data[0] % 2 == 0 ? parse_config<Tree>(text) : read_config<Tree>({text});
    const std::string once = config_text(tree);
    if (config_text(parse_config<Tree>(once)) != once) {
      std::fprintf(stderr, "a file that was printed does not read back as the same\n");
      std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
