// Numbers, texts, enums, durations: how one value is read and written.
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/quantity.h>
#include <shoal/internal/runtime/environment/nearest_name.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace shoal::config {
namespace {

Node made(Node::Kind kind) {
  Node node;
  node.kind = kind;
  return node;
}

bool is_written_text(const Node& node) { return node.kind == Node::Kind::text || node.kind == Node::Kind::string; }

/// The integers of all widths, as one that holds them all.
using Wide = __int128;

Wide least_of(std::size_t bytes, bool is_signed) { return is_signed ? -(Wide(1) << (8 * bytes - 1)) : Wide(0); }
Wide most_of(std::size_t bytes, bool is_signed) { return (Wide(1) << (8 * bytes - (is_signed ? 1 : 0))) - 1; }

Wide load(const void* value, std::size_t bytes, bool is_signed) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, value, bytes);
  if (!is_signed || bytes == 8) return is_signed ? Wide(std::int64_t(bits)) : Wide(bits);
  const std::uint64_t sign = std::uint64_t(1) << (8 * bytes - 1);
  return Wide(std::int64_t((bits ^ sign) - sign));
}

void store(void* value, std::size_t bytes, Wide number) {
  const auto bits = std::uint64_t(number);
  std::memcpy(value, &bits, bytes);
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// Decimal, or hexadecimal after 0x.
bool parse_integer(std::string_view text, Wide& number) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  std::uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  number = negative ? -Wide(magnitude) : Wide(magnitude);
  return true;
}

void check_limits(double number, const At& at, const Node& node) {
  if (!at.about) return;
  const OptionLimits& limits = at.about->limits;
  if (std::isfinite(limits.above) && !(number > limits.above))
    refuse(at, node, fmt::format("must be above {}", limits.above));
  if (std::isfinite(limits.least) && !(number >= limits.least))
    refuse(at, node, fmt::format("must be at least {}", limits.least));
  if (std::isfinite(limits.most) && !(number <= limits.most))
    refuse(at, node, fmt::format("must be at most {}", limits.most));
}

bool counts_bytes(const OptionText* about) { return about && about->limits.unit == "bytes"; }

class BoolKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override {
    bool result = false;
    if (node.kind == Node::Kind::boolean)
      result = node.boolean;
    else if (node.kind != Node::Kind::text || !parse(node.text, result))
      refuse(at, node, "must be true or false");
    *static_cast<bool*>(value) = result;
  }
  Node write(const void* value, const OptionText*) const override {
    Node node = made(Node::Kind::boolean);
    node.boolean = *static_cast<const bool*>(value);
    return node;
  }
  std::string type() const override { return "true|false"; }
  std::vector<std::string> choices() const override { return {"true", "false"}; }
  bool is_flag() const override { return true; }

 private:
  static bool parse(std::string_view text, bool& result) {
    for (const char* yes : {"true", "yes", "on", "1"})
      if (text == yes) return result = true;
    for (const char* no : {"false", "no", "off", "0"})
      if (text == no) return !(result = false);
    return false;
  }
};

class IntegerKind : public Kind {
 public:
  IntegerKind(std::size_t bytes, bool is_signed) : bytes_(bytes), is_signed_(is_signed) {}

  void read(void* value, const Node& node, const At& at) const override {
    Wide number = 0;
    if (node.kind == Node::Kind::integer)
      number = node.integer;
    else if (!is_written_text(node) || !parse(node, at, number))
      refuse(at, node, counts_bytes(at.about) ? "must be a number of bytes, as 64MiB or 1000" : "must be an integer");
    if (number < least_of(bytes_, is_signed_) || number > most_of(bytes_, is_signed_))
      refuse(at, node,
             fmt::format("must be an integer from {} to {}", least_text(), std::uint64_t(most_of(bytes_, is_signed_))));
    check_limits(double(number), at, node);
    store(value, bytes_, number);
  }
  Node write(const void* value, const OptionText* about) const override {
    const Wide number = load(value, bytes_, is_signed_);
    if (counts_bytes(about) && number >= 1024 && number % 1024 == 0)
      return Node::of_text(Node::Kind::string, bytes_text(std::uint64_t(number)));
    if (number > Wide(std::numeric_limits<std::int64_t>::max()))  // TOML's integers end there
      return Node::of_text(Node::Kind::string, fmt::format("{}", std::uint64_t(number)));
    Node node = made(Node::Kind::integer);
    node.integer = std::int64_t(number);
    return node;
  }
  std::string type() const override { return "integer"; }

 private:
  std::string least_text() const { return fmt::format("{}", std::int64_t(least_of(bytes_, is_signed_))); }
  bool parse(const Node& node, const At& at, Wide& number) const {
    if (std::uint64_t bytes = 0; counts_bytes(at.about) && parse_bytes(node.text, bytes)) {
      number = Wide(bytes);
      return true;
    }
    if (!parse_integer(node.text, number)) return false;
    // A string in a file is no number, but for those that TOML has no number for.
    return node.kind == Node::Kind::text || number > Wide(std::numeric_limits<std::int64_t>::max());
  }

  std::size_t bytes_;
  bool is_signed_;
};

template <class Real>
class RealKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override {
    Real number = 0;
    if (node.kind == Node::Kind::integer)
      number = Real(node.integer);
    else if (node.kind == Node::Kind::real)
      number = Real(node.real);
    else if (node.kind != Node::Kind::text || !parse_number(node.text, number))
      refuse(at, node, "must be a number");
    if (std::isinf(number) && node.kind == Node::Kind::real && !std::isinf(node.real))
      refuse(at, node, "must be a smaller number");
    check_limits(double(number), at, node);
    *static_cast<Real*>(value) = number;
  }
  Node write(const void* value, const OptionText*) const override {
    Node node = made(Node::Kind::real);
    const Real number = *static_cast<const Real*>(value);
    node.real = double(number);
    node.text = fmt::format("{}", number);
    return node;
  }
  std::string type() const override { return "number"; }
};

class StringKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override {
    if (!is_written_text(node))
      refuse(at, node, node.kind == Node::Kind::date ? "is a date: put it into quotes" : "must be a text, in quotes");
    *static_cast<std::string*>(value) = node.text;
  }
  Node write(const void* value, const OptionText*) const override {
    return Node::of_text(Node::Kind::string, *static_cast<const std::string*>(value));
  }
  std::string type() const override { return "text"; }
  bool is_text() const override { return true; }
};

class PathKind : public Kind {
 public:
  void read(void* value, const Node& node, const At& at) const override {
    if (!is_written_text(node)) refuse(at, node, "must be a path, in quotes");
    *static_cast<std::filesystem::path*>(value) = node.text;
  }
  Node write(const void* value, const OptionText*) const override {
    return Node::of_text(Node::Kind::string, static_cast<const std::filesystem::path*>(value)->string());
  }
  std::string type() const override { return "path"; }
  bool is_text() const override { return true; }
  bool is_file() const override { return true; }
};

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : between) + name;
  return text;
}

}  // namespace

const Kind& bool_kind() {
  static const BoolKind kind;
  return kind;
}
const Kind& string_kind() {
  static const StringKind kind;
  return kind;
}
const Kind& path_kind() {
  static const PathKind kind;
  return kind;
}
const Kind& integer_kind(std::size_t bytes, bool is_signed) {
  static const IntegerKind kinds[2][4] = {{{1, false}, {2, false}, {4, false}, {8, false}},
                                          {{1, true}, {2, true}, {4, true}, {8, true}}};
  return kinds[is_signed][bytes == 8 ? 3 : bytes / 2];
}
const Kind& real_kind(std::size_t bytes) {
  static const RealKind<float> single;
  static const RealKind<double> twice;
  if (bytes == sizeof(float)) return single;
  return twice;
}

void FormatKind::read(void* value, const Node& node, const At& at) const {
  const bool is_integer = node.kind == Node::Kind::integer;
  if (!is_written_text(node) && !is_integer) refuse(at, node, fmt::format("must be {}, in quotes", type_));
  try {
    from_text(value, is_integer ? fmt::format("{}", node.integer) : node.text);
  } catch (const std::exception& fault) {
    refuse(at, node, fault.what());
  }
}

Node FormatKind::write(const void* value, const OptionText*) const {
  Node node = made(Node::Kind::string);
  if (!to_text(value, node.text)) node.kind = Node::Kind::nothing;
  return node;
}

EnumKind::EnumKind(std::string_view said, std::int64_t least, std::size_t bytes, bool is_signed)
    : bytes_(bytes), is_signed_(is_signed) {
  // The values stand in the last pair of brackets: "(N::E)-16" has no name, "N::red" has one.
  std::size_t begin = said.find("kValues = ") + 11;
  std::int64_t value = least;
  int depth = 0;
  std::size_t part = begin;
  for (std::size_t i = begin; i < said.size(); ++i) {
    const char c = said[i];
    const bool is_end = depth == 0 && (c == ',' || c == '}' || c == '>');
    if (c == '<' || c == '(' || c == '{') ++depth;
    if ((c == '>' || c == ')' || c == '}') && depth > 0) --depth;
    if (!is_end) continue;
    std::string_view name = said.substr(part, i - part);
    while (name.starts_with(' ')) name.remove_prefix(1);
    // gcc: "(N::E)5"; a name may begin with "(anonymous namespace)" or "<unnamed>", and then goes on with "::".
    const std::size_t colon = name.rfind(':');
    const std::string_view last = colon == std::string_view::npos ? name : name.substr(colon + 1);
    if (last.find(')') == std::string_view::npos && !last.empty() && (last[0] < '0' || last[0] > '9') &&
        last[0] != '-') {
      names_.emplace_back(last);
      values_.push_back(value);
    }
    ++value;
    part = i + 1;
    if (c != ',') break;
  }
}

std::string EnumKind::type() const { return joined(names_, "|"); }

void EnumKind::read(void* value, const Node& node, const At& at) const {
  if (is_written_text(node))
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == node.text) return store(value, bytes_, values_[i]);
  std::string what = "must be one of " + joined(names_, ", ");
  if (const std::string near = nearest_name(is_written_text(node) ? node.text : "", names_); !near.empty())
    what += fmt::format("; did you mean '{}'?", near);
  refuse(at, node, what);
}

Node EnumKind::write(const void* value, const OptionText*) const {
  const Wide number = load(value, bytes_, is_signed_);
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (values_[i] == std::int64_t(number)) return Node::of_text(Node::Kind::string, names_[i]);
  return made(Node::Kind::nothing);  // a value without a name
}

void DurationKind::read(void* value, const Node& node, const At& at) const {
  Nanoseconds time = 0;
  const bool is_zero = node.kind == Node::Kind::integer && node.integer == 0;
  if (!is_zero && (!is_written_text(node) || !parse_duration(node.text, time)))
    refuse(at, node, "must be a duration with its unit, as 10ms, 2s, 1.5h (d, h, min, s, ms, us, ns)");
  if (time % unit_ != 0) refuse(at, node, fmt::format("must be a whole number of {}", unit_name(unit_)));
  time /= unit_;
  if (time < least_of(bytes_, is_signed_) || time > most_of(bytes_, is_signed_))
    refuse(at, node, "must be a shorter time");
  check_limits(double(time), at, node);
  store(value, bytes_, time);
}

Node DurationKind::write(const void* value, const OptionText*) const {
  return Node::of_text(Node::Kind::string, duration_text(load(value, bytes_, is_signed_) * unit_));
}

void RealDurationKind::read(void* value, const Node& node, const At& at) const {
  double time = 0;
  const bool is_zero = node.kind == Node::Kind::integer && node.integer == 0;
  if (!is_zero && (!is_written_text(node) || !parse_real_duration(node.text, unit_, time)))
    refuse(at, node, "must be a duration with its unit, as 10ms, 2s, 1.5h (d, h, min, s, ms, us, ns)");
  check_limits(time, at, node);
  if (bytes_ == sizeof(float))
    *static_cast<float*>(value) = float(time);
  else
    *static_cast<double*>(value) = time;
}

Node RealDurationKind::write(const void* value, const OptionText*) const {
  const std::string number = bytes_ == sizeof(float) ? fmt::format("{}", *static_cast<const float*>(value))
                                                     : fmt::format("{}", *static_cast<const double*>(value));
  return Node::of_text(Node::Kind::string, number + std::string(unit_name(unit_)));
}

}  // namespace shoal::config
