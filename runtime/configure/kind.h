// How values of one type are read from text, written and described. What does not depend on the type is compiled here, once.
#pragma once

#include <shoal/internal/runtime/configure/node.h>
#include <shoal/runtime/option_text.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::config {

/// Where in the settings a value belongs, and what their struct says about it. Lives on the stack.
struct At {
  const At* outer = nullptr;
  std::string_view name = {};         // a member, a key, an index; empty for the settings themselves
  const OptionText* about = nullptr;  // of an element: its list's

  At into(std::string_view step) const { return {this, step, about}; }
  std::string path() const;  // "loader.shape.1"
};

/// Throws ConfigError: where the value stands, what was written, what is wrong with it.
[[noreturn]] void refuse(const At& at, const Node& node, const std::string& what);
/// The same about a name: `place` is the key's.
[[noreturn]] void refuse_name(const At& at, const Node& node, const Place& place, std::string_view name,
                              const std::vector<std::string>& names);

class Kind;

/// What a value consists of, or one step into it.
struct Part {
  std::string_view name;
  const OptionText* about = nullptr;
  const Kind* kind = nullptr;
  void* value = nullptr;
};

/// One object a type. Threads: any.
class Kind {
 public:
  Kind() = default;
  Kind(const Kind&) = delete;
  Kind& operator=(const Kind&) = delete;
  virtual ~Kind() = default;

  /// Throws ConfigError. The value may have been changed in part.
  virtual void read(void* value, const Node& node, const At& at) const = 0;
  virtual Node write(const void* value, const OptionText* about) const = 0;
  /// For --help: "integer", "spawn|fork".
  virtual std::string type() const = 0;
  /// What may be written, if that is a list.
  virtual std::vector<std::string> choices() const { return {}; }
  /// Whether --NAME alone says something.
  virtual bool is_flag() const { return false; }
  /// Whether it takes any text.
  virtual bool is_text() const { return false; }
  virtual bool is_file() const { return false; }
  /// Whether += adds to it.
  virtual bool can_grow() const { return false; }
  /// The options in it, each with its own name: a struct's members.
  virtual std::vector<Part> parts(void* value) const;
  /// The part with this name, if there is one now; `typed`: on a command line, where - stands for _.
  virtual bool step(void* value, std::string_view name, bool typed, Part& part) const;
  /// Calls validate() of all structs in it, the innermost first. Throws ConfigError.
  virtual void validate(const void* value, const At& at) const;
};

const Kind& bool_kind();
const Kind& string_kind();
const Kind& path_kind();
const Kind& integer_kind(std::size_t bytes, bool is_signed);
const Kind& real_kind(std::size_t bytes);

/// A type with an OptionFormat.
class FormatKind : public Kind {
 public:
  explicit FormatKind(std::string type) : type_(std::move(type)) {}
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override { return type_; }
  bool is_text() const override { return true; }

 protected:
  virtual void from_text(void* value, std::string_view text) const = 0;
  virtual bool to_text(const void* value, std::string& text) const = 0;

 private:
  std::string type_;
};

class EnumKind : public Kind {
 public:
  /// `said`: said_of_enum. `least`: the first value in it.
  EnumKind(std::string_view said, std::int64_t least, std::size_t bytes, bool is_signed);
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override;
  std::vector<std::string> choices() const override { return names_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> values_;
  std::size_t bytes_;
  bool is_signed_;
};

/// Durations; a whole number of `unit` nanoseconds, or a double of units of that many seconds.
class DurationKind : public Kind {
 public:
  DurationKind(std::int64_t unit, std::size_t bytes, bool is_signed)
      : unit_(unit), bytes_(bytes), is_signed_(is_signed) {}
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override { return "duration"; }

 private:
  std::int64_t unit_;
  std::size_t bytes_;
  bool is_signed_;
};
class RealDurationKind : public Kind {
 public:
  RealDurationKind(std::int64_t unit, std::size_t bytes) : unit_(unit), bytes_(bytes) {}
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override { return "duration"; }

 private:
  std::int64_t unit_;
  std::size_t bytes_;
};

class OptionalKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override { return inner().type() + "|none"; }
  std::vector<std::string> choices() const override;
  bool is_flag() const override { return inner().is_flag(); }
  bool is_file() const override { return inner().is_file(); }
  bool can_grow() const override { return inner().can_grow(); }
  std::vector<Part> parts(void* value) const override;
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  virtual const Kind& inner() const = 0;
  virtual void* held(void* value) const = 0;  // null: none
  virtual void* emplace(void* value) const = 0;
  virtual void reset(void* value) const = 0;

 private:
  const void* held(const void* value) const { return held(const_cast<void*>(value)); }
};

using Visit = std::function<void(void*)>;

/// Elements of one type, as many as there are.
class ListKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override { return inner().type() + ",..."; }
  bool can_grow() const override { return true; }
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  virtual const Kind& inner() const = 0;
  virtual void clear(void* list) const = 0;
  /// One more, which `fill` fills.
  virtual void add(void* list, const Visit& fill) const = 0;
  virtual void each(void* list, const Visit& visit) const = 0;
  virtual std::size_t size(const void* list) const = 0;
  /// An element; null if elements have no places (a set's, a vector<bool>'s).
  virtual void* element(void* list, std::size_t index) const = 0;
};

/// A number of values that is fixed: array, pair, tuple.
class TupleKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override;
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  virtual std::size_t size() const = 0;
  virtual Part element(void* tuple, std::size_t index) const = 0;
};

class MapKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override;
  bool can_grow() const override { return true; }
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  virtual const Kind& key() const = 0;
  virtual const Kind& inner() const = 0;
  virtual void clear(void* map) const = 0;
  /// Calls `read_key` for a new key and returns the value there, which may be a new one.
  virtual void* entry(void* map, const Visit& read_key) const = 0;
  virtual void each(void* map, const std::function<void(const void* key, void* value)>& visit) const = 0;

 private:
  void* entry_of(void* map, const Node& node, const Entry& given, const At& at) const;
  std::vector<std::pair<std::string, void*>> sorted(void* map) const;
};

class VariantKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override;
  std::vector<std::string> choices() const override;
  std::vector<Part> parts(void* value) const override;
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  /// A type of the variant's. Structs, and std::monostate, are chosen by name.
  struct Alternative {
    std::string name;
    const Kind* kind = nullptr;  // null: std::monostate
    bool by_name = false;
  };
  virtual const std::vector<Alternative>& alternatives() const = 0;
  virtual std::size_t index(const void* variant) const = 0;
  virtual void* held(void* variant) const = 0;
  virtual void emplace(void* variant, std::size_t index) const = 0;
  /// Calls `visit` with a variant that is nobody's.
  virtual void with_another(const Visit& visit) const = 0;

 private:
  std::size_t named(std::string_view name) const;
  void choose(void* variant, std::size_t chosen) const;
  bool read_unnamed(void* value, const Node& node, const At& at) const;
  void read_table(void* value, const Node& node, const At& at) const;
  std::string type_list() const;
};

/// A plain struct.
class StructKind : public Kind {
 public:
  struct Member {
    std::string_view name;
    const OptionText* about;
    const Kind& (*kind)();
    void* (*at)(void* value);
  };
  void read(void* value, const Node& node, const At& at) const override;
  Node write(const void* value, const OptionText* about) const override;
  std::string type() const override;
  std::vector<Part> parts(void* value) const override;
  bool step(void* value, std::string_view name, bool typed, Part& part) const override;
  void validate(const void* value, const At& at) const override;

 protected:
  virtual const std::vector<Member>& members() const = 0;
  virtual void validate_itself(const void* value) const = 0;

 private:
  const Member* find(std::string_view name, bool typed) const;
};

}  // namespace shoal::config
