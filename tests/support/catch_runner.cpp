// Version 2 of Catch2 is compiled here, once for all test programs.
#define CATCH_CONFIG_RUNNER
// Its signal handlers are inherited by forked children, where they would report a child's SIGTERM as the test's
// failure. Which test a signal ended is seen from what the watchdog and ctest print.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include "tests/support/catch_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
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

struct TestCase {
  std::string name, file;
  bool is_alone;
};

std::vector<TestCase> visible_tests() {
  std::vector<TestCase> tests;
  for (const auto& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests()) {
#if CATCH_VERSION_MAJOR >= 3
    const Catch::TestCaseInfo& info = test.getTestCaseInfo();
    const auto is_alone = [](const Catch::Tag& tag) { return tag.original == Catch::StringRef("alone"); };
#else
    const Catch::TestCaseInfo& info = test;
    const auto is_alone = [](const std::string& tag) { return tag == "alone"; };
#endif
    if (info.isHidden()) continue;
    // From the folder of all tests on, without its end.
    const std::string path = info.lineInfo.file, folder = "tests/";
    const std::size_t start = path.rfind(folder), end = path.rfind('.');
    const std::size_t from = start == std::string::npos ? 0 : start + folder.size();
    tests.push_back({info.name, path.substr(from, end - from), std::ranges::any_of(info.tags, is_alone)});
  }
  return tests;
}

std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char letter : name) {
    if (std::string_view(",[]\"\\").find(letter) != std::string_view::npos) pattern += '\\';
    pattern += letter;
  }
  return pattern;
}

/// A name that matches no test is a failure.
#if CATCH_VERSION_MAJOR >= 3
constexpr const char* kNoTests = "UnmatchedTestSpec";
#else
constexpr const char* kNoTests = "NoTests";
#endif

// Catch2's own script for this takes a name with a semicolon for two, and then runs neither without a word.
int write_ctest(const std::string& file, const std::string& label, const std::string& properties) {
  std::ofstream out(file);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::map<std::string, int> cases_of;
  for (const TestCase& test : visible_tests()) {
    if (!test.is_alone) ++cases_of[test.file];
    // The watchdog ends a hanging test case after 60 s, a slow one after 240, and says where everybody was; ctest's limit
    // is for when that fails.
    out << fmt::format(
        "add_test([==[{0}/{1}]==] [==[{2}]==] [==[{3}]==] --warn {4})\n"
        "set_tests_properties([==[{0}/{1}]==] PROPERTIES TIMEOUT 300 LABELS \"{0};{5}\" {6})\n",
        label, test.name, program, pattern_of(test.name), kNoTests, test.is_alone ? "alone" : "case", properties);
  }
  for (const auto& [name, cases] : cases_of)
    out << fmt::format(
        "add_test([==[{1}]==] [==[{2}]==] --cases-of [==[{1}]==])\n"
        "set_tests_properties([==[{1}]==] PROPERTIES TIMEOUT {3} COST {4} LABELS \"{0};file\" {5})\n",
        label, name, program, 300 + 60 * cases, cases, properties);
  return out.flush() ? 0 : 1;
}

/// The test cases of one source that need no process of their own, one after the other.
int run_cases_of(const std::string& file) {
  std::string all;
  int expected = 0;
  for (const TestCase& test : visible_tests()) {
    if (test.file != file || test.is_alone) continue;
    all += (expected == 0 ? "" : ",") + pattern_of(test.name);
    ++expected;
  }
  if (expected == 0) {
    fmt::print(stderr, "no test case of {}\n", file);
    return 1;
  }
  Catch::Session session;
  session.configData().testsOrTags = {all};
  const int code = session.run();
  // Catch2 leaves out without a word what no name fits.
  if (ended_tests() == expected) return code;
  fmt::print(stderr, "{} test cases of {} ran, and there are {}\n", ended_tests(), file, expected);
  return 1;
}

}  // namespace

int run_catch(int argc, char** argv) {
  if (argc >= 4 && std::string(argv[1]) == "--write-ctest")
    return write_ctest(argv[2], argv[3], argc > 4 ? argv[4] : "");
  const bool is_file = argc == 3 && std::string(argv[1]) == "--cases-of";
  const int code = is_file ? run_cases_of(argv[2]) : Catch::Session().run(argc, argv);
  return code == 0 && leaking_tests() > 0 ? 1 : code;
}

}  // namespace shoal::test
