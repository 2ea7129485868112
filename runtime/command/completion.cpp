#include <shoal/internal/runtime/command/completion.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace shoal::command {
namespace {

/// As --help shows them: in a group without a name lie the spellings that are accepted and not advertised.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!subcommand->get_name().empty() && !subcommand->get_group().empty()) words.push_back(subcommand->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames())
      if (name.find('_') == std::string::npos) words.push_back("--" + name);
  }
  return words;
}

/// A line of the script's `case` for this application and each below it: `path` are the words that lead there.
void add_cases(const CLI::App& app, const std::string& path, std::string& cases) {
  cases += fmt::format("    '{}') words='{}' ;;\n", path, fmt::join(words_of(app), " "));
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!subcommand->get_name().empty()) add_cases(*subcommand, path + " " + subcommand->get_name(), cases);
}

/// A line for each subcommand: the word that leads deeper.
std::string paths_of(const CLI::App& app, const std::string& path) {
  std::string lines;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (subcommand->get_name().empty()) continue;
    const std::string deeper = path + " " + subcommand->get_name();
    lines += fmt::format("      '{}') path='{}' ;;\n", deeper, deeper) + paths_of(*subcommand, deeper);
  }
  return lines;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const std::string& program = app.get_name();
  std::string cases;
  add_cases(app, program, cases);
  return fmt::format(R"(# Completes {program} in bash: source <({program} --completion bash)
_{program}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path={program} each words=
  for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [ "$each" != -- ] || {{ COMPREPLY=($(compgen -f -c -- "$word")); return; }}
    case "$path $each" in
{paths}    esac
  done
  case $path in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _{program} {program}
)",
                     fmt::arg("program", program), fmt::arg("cases", cases), fmt::arg("paths", paths_of(app, program)));
}

}  // namespace shoal::command
