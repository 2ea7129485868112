// A configuration as text has it, before its types are known: from a file, the environment or the command line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal::config {

/// Who says a value.
struct Source {
  enum class Kind { file, environment, command_line };
  Kind kind = Kind::file;
  std::string text;  // the file's name; NAME=value; the argument as it was typed
};

struct Place {
  std::shared_ptr<const Source> source;  // null: shoal wrote the value itself
  std::uint32_t line = 0, column = 0;    // in a file, from 1
};

struct Entry;

/// A value. Plain.
struct Node {
  enum class Kind {
    nothing,  // a value that no text can give: it is left out
    boolean,
    integer,
    real,
    string,  // a file's, or one in quotes
    text,    // what the environment or the command line gives: its type is what the option's is
    date,    // a date or time of TOML, which no option has
    list,
    table,
  };
  Kind kind = Kind::nothing;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;  // of string, text, date; of a real that was written, as it was written
  std::vector<Node> elements;
  std::vector<Entry> entries;
  /// A step on the way to one option: what it does not name stays as it is.
  bool is_step = false;
  bool appends = false;   // NAME+=VALUE
  bool is_whole = false;  // all that its argument or variable says; false for parts of that
  std::string note;       // what a printed file says about it
  Place place;

  static Node of_text(Kind kind, std::string text);
};

/// A key of a table, and its value.
struct Entry {
  std::string key;
  Place place;
  Node value;
};

inline bool is_textual(const Node& node) { return node.kind == Node::Kind::text || node.kind == Node::Kind::string; }

inline Node Node::of_text(Kind kind, std::string text) {
  Node node;
  node.kind = kind;
  node.text = std::move(text);
  return node;
}

}  // namespace shoal::config
