// shoal beton: .beton files, by programs that know of data.
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/command/companion/companion.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::command {
namespace {

constexpr std::array<std::string_view, 4> kCommands = {"write", "info", "verify", "cat"};

/// Becomes that program. info, verify and cat answer at once; write alone has libtorch.
int become(const std::vector<std::string>& words) {
  const std::string name = words.front() == "write" ? "shoal-beton-write" : "shoal-beton";
  const std::string path = find_companion(name, "shoal beton " + words.front());
  std::vector<char*> arguments{const_cast<char*>("shoal beton")};
  for (std::size_t i = name == "shoal-beton" ? 0 : 1; i < words.size(); ++i)
    arguments.push_back(const_cast<char*>(words[i].c_str()));
  arguments.push_back(nullptr);
  ::execv(path.c_str(), arguments.data());
  throw SystemError(fmt::format("executing {}", path), errno);
}

}  // namespace

void add_beton(CLI::App& shoal, Action& action, const std::vector<std::string>& program) {
  CLI::App* beton = shoal.add_subcommand("beton", "writes .beton files, and looks at them: write, info, verify, cat");
  beton->prefix_command();  // the rest belongs to the program that this one becomes
  beton->footer(
      "  write   writes a folder, a .beton file or tar archives as a .beton file or as tar archives\n"
      "  info    fields, sizes, counts, pages, and a histogram of sizes\n"
      "  verify  reads everything, and says what is wrong\n"
      "  cat     prints the samples, a line each\n\n"
      "Each has a --help of its own. The page beton.md has the format (in docs/ of the sources, in share/doc/shoal/ "
      "where\n"
      "shoal is installed).");
  beton->callback([beton, &program, &action] {
    if (program.empty() || !beton->remaining().empty())
      throw RefusedCommand("beton: write, info, verify or cat? shoal beton info FILE", ExitCode::kUsage);
    if (std::ranges::find(kCommands, program.front()) == kCommands.end())
      throw RefusedCommand(fmt::format("beton: there is no {}: write, info, verify or cat?", program.front()),
                           ExitCode::kUsage);
    action = [&program] { return become(program); };
  });
}

}  // namespace shoal::command
