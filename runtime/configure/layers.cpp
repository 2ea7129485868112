#include <shoal/internal/runtime/configure/layers.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/config_error.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

namespace shoal::config {
namespace {

/// Options of every program. A struct's own member of this name is reached as NAME=VALUE alone.
constexpr std::array<std::string_view, 5> kOwn = {"help", "config", "print-config", "save-config", "completion"};

void add_leaves(const Part& part, const std::string& path, std::vector<Leaf>& all) {
  const std::vector<Part> parts = part.kind->parts(part.value);
  // A variant that is chosen by name is an option itself, beside those in it.
  if (!path.empty() && (parts.empty() || !part.kind->choices().empty())) all.push_back({path, part});
  for (const Part& inner : parts)
    add_leaves(inner, path.empty() ? std::string(inner.name) : path + "." + std::string(inner.name), all);
}

/// "a.b" and "a.'b.c'" as steps.
std::vector<std::string> steps_of(std::string_view path) {
  std::vector<std::string> steps(1);
  char quote = '\0';
  for (const char c : path) {
    if (quote != '\0' ? c == quote : (c == '"' || c == '\''))
      quote = quote == '\0' ? c : '\0';
    else if (c == '.' && quote == '\0')
      steps.emplace_back();
    else
      steps.back() += c;
  }
  return steps;
}

/// The value of one option as a tree from the settings down to it.
Node with_steps(const std::vector<std::string>& steps, Node leaf) {
  const Place place = leaf.place;
  leaf.is_whole = true;
  for (std::size_t i = steps.size(); i-- > 0;) {
    Node outer;
    outer.kind = Node::Kind::table;
    outer.is_step = true;
    outer.place = place;
    outer.entries.push_back({steps[i], place, std::move(leaf)});
    leaf = std::move(outer);
  }
  return leaf;
}

bool find(const Kind& kind, void* value, const std::vector<std::string>& steps, Part& part) {
  part = {"", nullptr, &kind, value};
  for (const std::string& step : steps) {
    Part inner = part;
    if (!part.kind->step(part.value, step, true, inner)) return false;
    part = inner;
  }
  return true;
}

Node said(Source::Kind kind, std::string source, std::string text) {
  Node node = Node::of_text(Node::Kind::text, std::move(text));
  node.place = {std::make_shared<const Source>(Source{kind, std::move(source)}), 0, 0};
  return node;
}

class CommandLine {
 public:
  CommandLine(const Kind& kind, void* value, const Request& request) : kind_(kind), value_(value), request_(request) {}

  /// What the program's own options say; they may stand anywhere.
  Answer own_options() {
    Answer answer;
    bool print_config = false;
    const std::vector<std::string>& given = request_.arguments;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::string& argument = given[i];
      if (argument == "--help" || argument == "-h") {
        answer.is_text = true;
        answer.text = help_text(kind_, value_, request_);
        return answer;
      }
      if (argument == "--print-config") {
        print_config = true;
        continue;
      }
      std::string text;
      if (takes("--config", given, i, text))
        read_toml_file(text);
      else if (takes("--save-config", given, i, text))
        answer.save = text;
      else if (takes("--completion", given, i, text))
        return completion(text);
      else
        rest_.push_back(argument);
    }
    answer.is_text = print_config;
    return answer;
  }

  void files() {
    for (const Node& file : files_) {
      const At at;
      kind_.read(value_, file, at);
    }
  }

  void options() {
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const std::string& argument = rest_[i];
      if (argument.starts_with("--") && argument.size() > 2)
        long_option(argument, i);
      else if (const std::size_t equals = argument.find('=');
               equals != std::string::npos && equals > 0 && argument[0] != '-')
        assign(argument.substr(0, equals), argument.substr(equals + 1), argument);
      else
        throw ConfigError(fmt::format("{}: this is no option: write NAME=VALUE or --NAME VALUE", argument));
    }
  }

 private:
  static bool takes(const std::string& option, const std::vector<std::string>& given, std::size_t& i,
                    std::string& text) {
    if (given[i].starts_with(option + "=")) {
      text = given[i].substr(option.size() + 1);
      return true;
    }
    if (given[i] != option) return false;
    if (i + 1 == given.size()) throw ConfigError(fmt::format("{}: needs a value", option));
    text = given[++i];
    return true;
  }

  void read_toml_file(const std::string& file) { files_.push_back(read_toml(file)); }

  Answer completion(const std::string& shell) const {
    if (shell != "bash") throw ConfigError(fmt::format("--completion {}: must be bash", shell));
    Answer answer;
    answer.is_text = true;
    answer.text = bash_completion(kind_, value_, request_);
    return answer;
  }

  void assign(std::string name, std::string text, const std::string& argument) {
    Node node = said(Source::Kind::command_line, argument, std::move(text));
    if (name.ends_with('+')) {
      name.pop_back();
      node.appends = true;
    }
    const std::vector<std::string> steps = steps_of(name);
    if (Part part; node.appends && find(kind_, value_, steps, part) && !part.kind->can_grow())
      throw ConfigError(fmt::format("{}: += adds to a list, and this is none", argument), name);
    const At at;
    kind_.read(value_, with_steps(steps, std::move(node)), at);
  }

  void long_option(const std::string& argument, std::size_t& i) {
    const std::string name = argument.substr(2);
    if (const std::size_t equals = name.find('='); equals != std::string::npos)
      return assign(name.substr(0, equals), name.substr(equals + 1), argument);
    Part part;
    const bool is_there = find(kind_, value_, steps_of(name), part);
    if (!is_there && negated(name, argument)) return;
    const bool has_next = i + 1 < rest_.size() && !rest_[i + 1].starts_with("--");
    if (is_there && part.kind->is_flag()) {
      const std::vector<std::string> values = part.kind->choices();
      if (has_next && std::ranges::find(values, rest_[i + 1]) != values.end()) {
        ++i;
        return assign(name, rest_[i], argument + " " + rest_[i]);
      }
      return assign(name, "true", argument);
    }
    if (!is_there && !has_next) return assign(name, "", argument);  // which says what is wrong with the name
    if (!has_next) throw ConfigError(fmt::format("{}: needs a value: {}", argument, part.kind->type()), name);
    ++i;
    assign(name, rest_[i], argument + " " + rest_[i]);
  }

  /// --no-FLAG, --a.no-FLAG, --no-a.FLAG.
  bool negated(const std::string& name, const std::string& argument) {
    for (const std::size_t at : {std::size_t(0), name.rfind('.') + 1}) {
      const std::string_view rest = std::string_view(name).substr(at);
      if (!rest.starts_with("no-") && !rest.starts_with("no_")) continue;
      const std::string positive = name.substr(0, at) + name.substr(at + 3);
      Part part;
      if (!find(kind_, value_, steps_of(positive), part) || !part.kind->is_flag()) continue;
      assign(positive, "false", argument);
      return true;
    }
    return false;
  }

  const Kind& kind_;
  void* value_;
  const Request& request_;
  std::vector<Node> files_;
  std::vector<std::string> rest_;
};

/// The variables that belong to the program, and which of them stand for options.
class Variables {
 public:
  Variables(const Kind& kind, void* value, const Request& request)
      : kind_(kind), value_(value), program_(request.options.name) {
    const std::string prefix = variable_of(program_, "");
    for (const std::string& variable : request.environment)
      if (const std::size_t equals = variable.find('='); variable.starts_with(prefix) && equals != std::string::npos)
        given_[variable.substr(0, equals)] = variable.substr(equals + 1);
  }

  /// From the outside in: a variable may say which alternative a variant has, and so which options there are.
  void read() {
    if (!given_.empty()) read_below({"", nullptr, &kind_, value_}, {});
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> texts;
    for (const auto& [name, text] : given_)
      if (!read_.contains(name))
        if (const std::string near = nearest_name(name, all_); !near.empty())
          texts.push_back(fmt::format("the variable {} stands for no option; {} does", name, near));
    return texts;
  }

 private:
  void read_below(const Part& part, const std::vector<std::string>& steps) {
    for (const Part& inner : part.kind->parts(part.value)) {
      std::vector<std::string> path = steps;
      path.emplace_back(inner.name);
      std::string text;
      for (const std::string& step : path) text += (text.empty() ? "" : ".") + step;
      const std::string name = variable_of(program_, text);
      all_.push_back(name);
      if (const auto found = given_.find(name); found != given_.end()) {
        const auto [other, is_first] = read_.try_emplace(name, text);
        if (!is_first && other->second != text)
          throw ConfigError(
              fmt::format("{} in the environment stands for '{}' and for '{}'", name, other->second, text), text);
        const At at;
        Node node = said(Source::Kind::environment, name + "=" + found->second, found->second);
        kind_.read(value_, with_steps(path, std::move(node)), at);
      }
      read_below(inner, path);
    }
  }

  const Kind& kind_;
  void* value_;
  std::string program_;
  std::map<std::string, std::string> given_, read_;
  std::vector<std::string> all_;
};

}  // namespace

Environment own_environment() {
  Environment all;
  for (char** variable = ::environ; variable && *variable; ++variable) all.emplace_back(*variable);
  return all;
}

std::string variable_of(std::string_view program, std::string_view option) {
  std::string name = fmt::format("{}_{}", program, option);
  for (char& c : name) {
    if (c >= 'a' && c <= 'z')
      c = char(c - 'a' + 'A');
    else if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9'))
      c = '_';
  }
  return name;
}

std::vector<Leaf> leaves_of(const Kind& kind, void* value) {
  std::vector<Leaf> all;
  add_leaves({"", nullptr, &kind, value}, "", all);
  return all;
}

Answer apply(const Kind& kind, void* value, const Request& request) {
  for (const Part& part : kind.parts(value)) {
    std::string name(part.name);
    std::ranges::replace(name, '_', '-');
    if (std::ranges::find(kOwn, name) != kOwn.end())
      throw std::logic_error(fmt::format(
          "shoal::configure: the member {} has the name of an option of every program: rename it", part.name));
  }
  CommandLine line(kind, value, request);
  Answer answer = line.own_options();
  if (answer.is_text && !answer.text.empty()) return answer;
  line.files();
  Variables variables(kind, value, request);
  variables.read();
  line.options();
  answer.warnings = variables.warnings();
  kind.validate(value, At());
  if (answer.is_text) answer.text = toml_text(kind.write(value, nullptr));
  return answer;
}

Request request_of(int argc, char** argv, const ConfigureOptions& options) {
  Request request{options, {argv + std::min(argc, 1), argv + argc}, own_environment()};
  if (request.options.name.empty())
    request.options.name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "program";
  return request;
}

void configure(const Kind& kind, void* value, const Request& request) {
  try {
    const Answer answer = apply(kind, value, request);
    for (const std::string& warning : answer.warnings) fmt::print(stderr, "{}: {}\n", request.options.name, warning);
    if (!answer.save.empty()) write_file(answer.save, toml_text(kind.write(value, nullptr)));
    if (!answer.is_text) return;
    fmt::print("{}", answer.text);
    std::fflush(stdout);
  } catch (const ConfigError& error) {
    fmt::print(stderr, "{}: {}\n", request.options.name, error.what());
    std::exit(2);
  } catch (const SystemError& error) {
    fmt::print(stderr, "{}: {}\n", request.options.name, error.what());
    std::exit(2);
  }
  std::exit(0);
}

}  // namespace shoal::config
