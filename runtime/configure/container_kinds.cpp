// Optionals, lists, tuples and maps: what of them does not depend on their elements' types.
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/configure/typed_value.h>

#include <algorithm>
#include <charconv>

namespace shoal::config {
namespace {

bool means_none(std::string_view text) { return text == "none" || text == "null"; }

std::size_t index_of(std::string_view name, std::size_t size) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() && index < size ? index : size;
}

[[noreturn]] void refuse_index(const Node& node, const At& at, std::string_view name, std::size_t size) {
  const std::string path = at.path() + "." + std::string(name);
  At inner = at.into(name);
  refuse(inner, node,
         size == 0 ? fmt::format("no '{}': {} is empty", path, at.path())
                   : fmt::format("no '{}': {} has the elements 0 to {}", path, at.path(), size - 1));
}

}  // namespace

std::vector<Part> Kind::parts(void*) const { return {}; }
bool Kind::step(void*, std::string_view, bool, Part&) const { return false; }
void Kind::validate(const void*, const At&) const {}

// Optionals. "none" is none, so a text that is "none", or in quotes, is written in quotes of its own.

void OptionalKind::read(void* value, const Node& node, const At& at) const {
  if (!node.is_step && is_textual(node)) {
    if (means_none(node.text)) return reset(value);
    Node plain = node;
    if (unquote(node.text, plain.text)) {
      plain.kind = Node::Kind::string;
      return inner().read(held(value) ? held(value) : emplace(value), plain, at);
    }
  }
  void* there = held(value);
  inner().read(there ? there : emplace(value), node, at);
}

Node OptionalKind::write(const void* value, const OptionText* about) const {
  const void* there = held(value);
  if (!there) return Node::of_text(Node::Kind::string, "none");
  Node node = inner().write(there, about);
  if (node.kind != Node::Kind::string ||
      (!means_none(node.text) && !node.text.starts_with('"') && !node.text.starts_with('\'')))
    return node;
  std::string quoted = "\"";
  for (const char c : node.text) quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  node.text = quoted + '"';
  return node;
}

std::vector<std::string> OptionalKind::choices() const {
  std::vector<std::string> all = inner().choices();
  if (!all.empty()) all.emplace_back("none");
  return all;
}

std::vector<Part> OptionalKind::parts(void* value) const {
  void* there = held(value);
  return there ? inner().parts(there) : std::vector<Part>();
}

bool OptionalKind::step(void* value, std::string_view name, bool typed, Part& part) const {
  void* there = held(value);
  return there && inner().step(there, name, typed, part);
}

void OptionalKind::validate(const void* value, const At& at) const {
  if (const void* there = held(value)) inner().validate(there, at);
}

// Lists.

void ListKind::read(void* value, const Node& node, const At& at) const {
  if (node.is_step) {
    for (const Entry& entry : node.entries) {
      const std::size_t count = size(value), index = index_of(entry.key, count);
      if (index == count) refuse_index(entry.value, at, entry.key, count);
      void* there = element(value, index);
      if (!there)
        refuse(at.into(entry.key), entry.value, "the elements of this list have no places: set it as a whole");
      inner().read(there, entry.value, at.into(entry.key));
    }
    return;
  }
  const Node list = as_list(node, at);
  if (list.kind != Node::Kind::list) refuse(at, node, "must be a list, as [" + inner().type() + ", ...]");
  if (!list.appends && !node.appends) clear(value);
  std::size_t index = size(value);
  for (const Node& given : list.elements) {
    const std::string name = std::to_string(index++);
    add(value, [&](void* there) { inner().read(there, given, at.into(name)); });
  }
}

Node ListKind::write(const void* value, const OptionText* about) const {
  Node list;
  list.kind = Node::Kind::list;
  each(const_cast<void*>(value), [&](void* there) { list.elements.push_back(inner().write(there, about)); });
  return list;
}

bool ListKind::step(void* value, std::string_view name, bool, Part& part) const {
  const std::size_t index = index_of(name, size(value));
  void* there = index < size(value) ? element(value, index) : nullptr;
  if (there) part = {name, part.about, &inner(), there};
  return there;
}

void ListKind::validate(const void* value, const At& at) const {
  std::size_t index = 0;
  each(const_cast<void*>(value), [&](void* there) {
    const std::string name = std::to_string(index++);
    inner().validate(there, at.into(name));
  });
}

// Tuples.

void TupleKind::read(void* value, const Node& node, const At& at) const {
  if (node.is_step) {
    for (const Entry& entry : node.entries) {
      const std::size_t index = index_of(entry.key, size());
      if (index == size()) refuse_index(entry.value, at, entry.key, size());
      const Part part = element(value, index);
      part.kind->read(part.value, entry.value, at.into(entry.key));
    }
    return;
  }
  const Node list = as_list(node, at);
  if (list.kind != Node::Kind::list || list.elements.size() != size())
    refuse(at, node, fmt::format("must be a list of {}", size()));
  for (std::size_t i = 0; i < size(); ++i) {
    const std::string name = std::to_string(i);
    const Part part = element(value, i);
    part.kind->read(part.value, list.elements[i], at.into(name));
  }
}

Node TupleKind::write(const void* value, const OptionText* about) const {
  Node list;
  list.kind = Node::Kind::list;
  for (std::size_t i = 0; i < size(); ++i) {
    const Part part = element(const_cast<void*>(value), i);
    list.elements.push_back(part.kind->write(part.value, about));
  }
  return list;
}

std::string MapKind::type() const { return fmt::format("{{{}={},...}}", key().type(), inner().type()); }

std::string TupleKind::type() const {
  std::string text;
  for (std::size_t i = 0; i < size(); ++i) {
    if (i > 0) text += ',';
    text += element(nullptr, i).kind->type();
  }
  return text;
}

bool TupleKind::step(void* value, std::string_view name, bool, Part& part) const {
  const std::size_t index = index_of(name, size());
  if (index == size()) return false;
  const OptionText* about = part.about;
  part = element(value, index);
  part.name = name;
  part.about = about;
  return true;
}

void TupleKind::validate(const void* value, const At& at) const {
  for (std::size_t i = 0; i < size(); ++i) {
    const std::string name = std::to_string(i);
    const Part part = element(const_cast<void*>(value), i);
    part.kind->validate(part.value, at.into(name));
  }
}

// Maps.

void* MapKind::entry_of(void* map, const Node& node, const Entry& given, const At& at) const {
  return entry(map, [&](void* new_key) {
    Node name = Node::of_text(Node::Kind::text, given.key);
    name.place = given.place.source ? given.place : node.place;
    key().read(new_key, name, at.into(given.key));
  });
}

void MapKind::read(void* value, const Node& node, const At& at) const {
  const Node table = node.is_step ? node : as_table(node, at);
  if (table.kind != Node::Kind::table) refuse(at, node, "must be a table, as {NAME = " + inner().type() + ", ...}");
  if (!node.is_step && !node.appends) clear(value);
  for (const Entry& given : table.entries)
    inner().read(entry_of(value, node, given, at), given.value, at.into(given.key));
}

std::vector<std::pair<std::string, void*>> MapKind::sorted(void* map) const {
  std::vector<std::pair<std::string, void*>> all;
  each(map, [&](const void* name, void* there) {
    const Node node = key().write(name, nullptr);
    all.emplace_back(node.kind == Node::Kind::string ? node.text : value_text(node), there);
  });
  std::ranges::sort(all, {}, &std::pair<std::string, void*>::first);
  return all;
}

Node MapKind::write(const void* value, const OptionText* about) const {
  Node table;
  table.kind = Node::Kind::table;
  for (const auto& [name, there] : sorted(const_cast<void*>(value)))
    table.entries.push_back({name, {}, inner().write(there, about)});
  return table;
}

bool MapKind::step(void* value, std::string_view name, bool, Part& part) const {
  for (const auto& [key_there, there] : sorted(value))
    if (key_there == name) {
      part = {name, part.about, &inner(), there};
      return true;
    }
  return false;
}

void MapKind::validate(const void* value, const At& at) const {
  for (const auto& [name, there] : sorted(const_cast<void*>(value))) inner().validate(there, at.into(name));
}

}  // namespace shoal::config
