// Version 2 of Catch2 is compiled here, once for all test programs.
#define CATCH_CONFIG_RUNNER
// Its signal handlers are inherited by forked children, where they would report a child's SIGTERM as the test's
// failure. Which test a signal ended is seen from ctest, which runs every test case in a process of its own.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include "tests/support/catch_runner.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

#if CATCH_VERSION_MAJOR >= 3
#include <catch2/internal/catch_fatal_condition_handler.hpp>

// Version 3 comes compiled, with its signal handlers. These take the place of its functions that set and reset them.
namespace Catch {
FatalConditionHandler::FatalConditionHandler() = default;
FatalConditionHandler::~FatalConditionHandler() = default;
void FatalConditionHandler::engage_platform() {}
void FatalConditionHandler::disengage_platform() noexcept {}
}  // namespace Catch
#endif

namespace shoal::test {
namespace {

std::vector<std::string> visible_tests() {
  std::vector<std::string> names;
  for (const auto& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests()) {
#if CATCH_VERSION_MAJOR >= 3
    const Catch::TestCaseInfo& info = test.getTestCaseInfo();
#else
    const Catch::TestCaseInfo& info = test;
#endif
    if (!info.isHidden()) names.push_back(info.name);
  }
  return names;
}

/// A name that matches no test is a failure.
#if CATCH_VERSION_MAJOR >= 3
constexpr const char* kNoTests = "UnmatchedTestSpec";
#else
constexpr const char* kNoTests = "NoTests";
#endif

// Catch2's own script for this takes a name with a semicolon for two, and then runs neither without a word.
int write_ctest(const std::string& file, const std::string& label) {
  std::ofstream out(file);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& name : visible_tests()) {
    std::string pattern;
    for (const char letter : name) {
      if (std::string_view(",[]\"\\").find(letter) != std::string_view::npos) pattern += '\\';
      pattern += letter;
    }
    // The watchdog ends a hanging test case after 60 s, a slow one after 240, and says where everybody was; ctest's limit
    // is for when that fails.
    out << fmt::format(
        "add_test([==[{0}/{1}]==] [==[{2}]==] [==[{3}]==] --warn {4})\n"
        "set_tests_properties([==[{0}/{1}]==] PROPERTIES TIMEOUT 300 LABELS {0})\n",
        label, name, program, pattern, kNoTests);
  }
  return out.flush() ? 0 : 1;
}

}  // namespace

int run_catch(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--write-ctest") return write_ctest(argv[2], argv[3]);
  const int code = Catch::Session().run(argc, argv);
  return code == 0 && leaking_tests() > 0 ? 1 : code;
}

}  // namespace shoal::test
