#include <shoal/internal/runtime/configure/typed_value.h>

#include <stdexcept>

namespace shoal::config {
namespace {

constexpr int kDeepest = 64;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Reads values from the front of a text. Throws std::invalid_argument.
class Reader {
 public:
  Reader(std::string_view text, Place place) : rest_(text), place_(std::move(place)) {}

  Node list_until(char end) {
    Node list = made(Node::Kind::list);
    skip_spaces();
    while (!at(end)) {
      list.elements.push_back(value(end));
      if (!next(end)) break;
    }
    finish(end);
    return list;
  }

  Node table_until(char end) {
    Node table = made(Node::Kind::table);
    skip_spaces();
    while (!at(end)) {
      skip_spaces();
      std::string key;
      if (!rest_.empty() && (rest_[0] == '"' || rest_[0] == '\''))
        key = quoted();
      else
        key = trimmed(take_until("=,[]{}"));
      skip_spaces();
      if (!rest_.starts_with('='))
        throw std::invalid_argument("must be NAME=VALUE,...: there is no = after '" + key + "'");
      rest_.remove_prefix(1);
      table.entries.push_back({key, place_, value(end)});
      if (!next(end)) break;
    }
    finish(end);
    return table;
  }

 private:
  Node made(Node::Kind kind) const {
    Node node;
    node.kind = kind;
    node.place = place_;
    return node;
  }
  bool at(char end) const { return end == '\0' ? rest_.empty() : rest_.starts_with(end); }
  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  /// Goes over a comma. Returns false at the end.
  bool next(char end) {
    skip_spaces();
    if (at(end)) return false;
    if (!rest_.starts_with(',')) throw std::invalid_argument("has '" + std::string(rest_) + "' where a comma must be");
    rest_.remove_prefix(1);
    skip_spaces();
    return true;
  }
  void finish(char end) {
    if (!at(end)) throw std::invalid_argument(std::string("has no '") + end + "' at its end");
    if (end != '\0') rest_.remove_prefix(1);
  }
  std::string_view take_until(std::string_view ends) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string quoted() {
    const char quote = rest_[0];
    std::string text;
    std::size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      if (quote == '"' && rest_[i] == '\\' && i + 1 < rest_.size()) ++i;
      text += rest_[i];
    }
    if (i >= rest_.size()) throw std::invalid_argument(std::string("has no ") + quote + " at the end of a quoted text");
    rest_.remove_prefix(i + 1);
    return text;
  }
  Node value(char end) {
    if (++depth_ > kDeepest) throw std::invalid_argument("is nested too deeply");
    skip_spaces();
    Node node;
    if (rest_.starts_with('[') || rest_.starts_with('{')) {
      const bool is_list = rest_[0] == '[';
      rest_.remove_prefix(1);
      node = is_list ? list_until(']') : table_until('}');
    } else if (rest_.starts_with('"') || rest_.starts_with('\'')) {
      node = made(Node::Kind::string);
      node.text = quoted();
    } else {
      node = made(Node::Kind::text);
      node.text = trimmed(take_until(end == '\0' ? "," : ",]}"));
    }
    --depth_;
    return node;
  }

  std::string_view rest_;
  Place place_;
  int depth_ = 0;
};

template <class Read>
Node read_typed(const Node& node, const At& at, char open, char close, Read read) {
  if (node.kind != Node::Kind::text) return node;
  std::string_view text = trimmed(node.text);
  const bool enclosed = text.starts_with(open);
  if (enclosed) text.remove_prefix(1);
  try {
    if (!enclosed) return read(Reader(text, node.place), '\0');
    if (!text.ends_with(close)) throw std::invalid_argument(std::string("has no '") + close + "' at its end");
    text.remove_suffix(1);
    return read(Reader(text, node.place), '\0');
  } catch (const std::invalid_argument& fault) {
    refuse(at, node, fault.what());
  }
}

}  // namespace

Node as_list(const Node& node, const At& at) {
  // "[1],[2]" has elements that are lists, "[1,2]" is a list.
  if (node.kind == Node::Kind::text && trimmed(node.text).starts_with('[')) {
    try {
      if (split_at_commas(node.text).size() > 1) {
        Reader reader(trimmed(node.text), node.place);
        return reader.list_until('\0');
      }
    } catch (const std::invalid_argument& fault) {
      refuse(at, node, fault.what());
    }
  }
  return read_typed(node, at, '[', ']', [](Reader reader, char end) { return reader.list_until(end); });
}

Node as_table(const Node& node, const At& at) {
  return read_typed(node, at, '{', '}', [](Reader reader, char end) { return reader.table_until(end); });
}

bool looks_like_table(std::string_view text) { return trimmed(text).starts_with('{'); }

bool unquote(std::string_view text, std::string& result) {
  if (text.size() < 2 || (text[0] != '"' && text[0] != '\'') || text.back() != text[0]) return false;
  std::string taken;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[0] == '"' && text[i] == '\\') {
      if (++i + 1 >= text.size()) return false;
    } else if (text[i] == text[0]) {
      return false;
    }
    taken += text[i];
  }
  result = std::move(taken);
  return true;
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  std::string open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool in_quotes = !open.empty() && (open.back() == '"' || open.back() == '\'');
    if (in_quotes) {
      if (c == '\\' && open.back() == '"' && i + 1 < text.size())
        parts.back() += text[i++];
      else if (c == open.back())
        open.pop_back();
    } else if (c == '"' || c == '\'') {
      // Within a text it is an apostrophe.
      if (trimmed(parts.back()).empty() || !open.empty()) open += c;
    } else if (c == '[' || c == '{') {
      open += c == '[' ? ']' : '}';
    } else if (!open.empty() && c == open.back()) {
      open.pop_back();
    } else if (c == ',' && open.empty()) {
      parts.emplace_back();
      continue;
    }
    parts.back() += text[i];
  }
  if (!open.empty()) throw std::invalid_argument(std::string("has no ") + open.back() + " where something in it ends");
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

}  // namespace shoal::config
