// Structs, and variants whose alternatives have names.
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/typed_value.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/runtime/config_error.h>

#include <algorithm>

namespace shoal::config {
namespace {

constexpr std::string_view kTypeKey = "type", kValueKey = "value";

bool is_typed(const Node& node) { return node.place.source && node.place.source->kind != Source::Kind::file; }

std::string note_of(const OptionText* about) {
  if (!about) return "";
  std::string note(about->text);
  if (!about->limits.unit.empty()) note += (note.empty() ? "" : "; ") + std::string(about->limits.unit);
  std::ranges::replace(note, '\n', ' ');
  return note;
}

}  // namespace

const StructKind::Member* StructKind::find(std::string_view name, bool typed) const {
  for (const Member& member : members())
    if (member.name == name) return &member;
  if (!typed) return nullptr;
  std::string written(name);
  std::ranges::replace(written, '-', '_');
  for (const Member& member : members())
    if (member.name == written) return &member;
  return nullptr;
}

void StructKind::read(void* value, const Node& node, const At& at) const {
  const Node table = node.is_step ? node : as_table(node, at);
  if (table.kind != Node::Kind::table) refuse(at, node, "must be a table: " + type());
  for (const Entry& entry : table.entries) {
    const Member* member = find(entry.key, is_typed(entry.value));
    if (!member) {
      std::vector<std::string> names;
      for (const Member& other : members()) names.emplace_back(other.name);
      refuse_name(at, entry.value, entry.place, entry.key, names);
    }
    member->kind().read(member->at(value), entry.value, {&at, member->name, member->about});
  }
}

Node StructKind::write(const void* value, const OptionText*) const {
  Node table;
  table.kind = Node::Kind::table;
  for (const Member& member : members()) {
    Node node = member.kind().write(member.at(const_cast<void*>(value)), member.about);
    node.note = note_of(member.about);
    table.entries.push_back({std::string(member.name), {}, std::move(node)});
  }
  return table;
}

std::string StructKind::type() const {
  std::string names;
  for (const Member& member : members()) names += (names.empty() ? "" : ", ") + std::string(member.name);
  return "{" + names + "}";
}

std::vector<Part> StructKind::parts(void* value) const {
  std::vector<Part> all;
  for (const Member& member : members()) all.push_back({member.name, member.about, &member.kind(), member.at(value)});
  return all;
}

bool StructKind::step(void* value, std::string_view name, bool typed, Part& part) const {
  const Member* member = find(name, typed);
  if (member) part = {member->name, member->about, &member->kind(), member->at(value)};
  return member;
}

void StructKind::validate(const void* value, const At& at) const {
  for (const Member& member : members())
    member.kind().validate(member.at(const_cast<void*>(value)), {&at, member.name, member.about});
  try {
    validate_itself(value);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& fault) {
    const std::string path = at.path();
    throw ConfigError(path.empty() ? fault.what() : fmt::format("{}: {}", path, fault.what()), path);
  }
}

std::size_t VariantKind::named(std::string_view name) const {
  const auto& all = alternatives();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return i;
  return all.size();
}

void VariantKind::choose(void* variant, std::size_t chosen) const {
  if (index(variant) != chosen) emplace(variant, chosen);
}

std::vector<std::string> VariantKind::choices() const {
  std::vector<std::string> names;
  for (const Alternative& alternative : alternatives())
    if (alternative.by_name) names.push_back(alternative.name);
  return names;
}

std::string VariantKind::type() const {
  std::string text;
  for (const Alternative& alternative : alternatives()) text += (text.empty() ? "" : "|") + alternative.name;
  return text;
}

/// Alternatives that are no structs are tried in their order, those that take any text last.
bool VariantKind::read_unnamed(void* value, const Node& node, const At& at) const {
  const auto& all = alternatives();
  for (const bool takes_text : {false, true})
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].by_name || all[i].kind->is_text() != takes_text) continue;
      bool fits = true;
      with_another([&](void* scratch) {
        emplace(scratch, i);
        try {
          all[i].kind->read(held(scratch), node, at);
        } catch (const ConfigError&) {
          fits = false;
        }
      });
      if (!fits) continue;
      emplace(value, i);
      all[i].kind->read(held(value), node, at);
      return true;
    }
  return false;
}

void VariantKind::read_table(void* value, const Node& node, const At& at) const {
  Node rest = node;
  const auto type = std::ranges::find(rest.entries, kTypeKey, &Entry::key);
  if (type != rest.entries.end()) {
    const std::size_t chosen = is_textual(type->value) ? named(type->value.text) : alternatives().size();
    if (chosen == alternatives().size()) {
      std::string what = "must be one of " + type_list();
      const std::string near = is_textual(type->value) ? nearest_name(type->value.text, choices()) : "";
      refuse(at.into(kTypeKey), type->value, near.empty() ? what : fmt::format("{}; did you mean '{}'?", what, near));
    }
    choose(value, chosen);
    rest.entries.erase(type);
  } else if (!alternatives()[index(value)].by_name || !alternatives()[index(value)].kind) {
    refuse(at, node, "lacks 'type', which must be one of " + type_list());
  }
  const Alternative& alternative = alternatives()[index(value)];
  if (alternative.by_name && alternative.kind) return alternative.kind->read(held(value), rest, at);
  for (const Entry& entry : rest.entries) {
    if (entry.key != kValueKey || !alternative.kind)
      refuse_name(at, entry.value, entry.place, entry.key,
                  alternative.kind ? std::vector<std::string>{std::string(kValueKey)} : std::vector<std::string>{});
    alternative.kind->read(held(value), entry.value, at);
  }
}

std::string VariantKind::type_list() const {
  std::string text;
  for (const Alternative& alternative : alternatives()) text += (text.empty() ? "" : ", ") + alternative.name;
  return text;
}

void VariantKind::read(void* value, const Node& node, const At& at) const {
  if (node.kind == Node::Kind::table) return read_table(value, node, at);
  if (node.kind == Node::Kind::text && looks_like_table(node.text)) return read_table(value, as_table(node, at), at);
  if (is_textual(node))
    if (const std::size_t chosen = named(node.text); chosen < alternatives().size() && alternatives()[chosen].by_name)
      return choose(value, chosen);
  if (read_unnamed(value, node, at)) return;
  std::string what = "must be one of " + type_list();
  if (const std::string near = nearest_name(is_textual(node) ? node.text : "", choices()); !near.empty())
    what += fmt::format("; did you mean '{}'?", near);
  refuse(at, node, what);
}

Node VariantKind::write(const void* value, const OptionText* about) const {
  const std::size_t chosen = index(value);
  const Alternative& alternative = alternatives()[chosen];
  if (!alternative.kind) return Node::of_text(Node::Kind::string, alternative.name);
  Node inner = alternative.kind->write(held(const_cast<void*>(value)), about);
  if (!alternative.by_name) {
    // Alone, if it is read as the same alternative.
    bool same = false;
    with_another([&](void* scratch) {
      try {
        const At nowhere_at;
        read(scratch, inner, nowhere_at);
        same = index(scratch) == chosen;
      } catch (const ConfigError&) {
        same = false;
      }
    });
    if (same) return inner;
  }
  Node table;
  table.kind = Node::Kind::table;
  table.entries.push_back({std::string(kTypeKey), {}, Node::of_text(Node::Kind::string, alternative.name)});
  if (alternative.by_name)
    for (Entry& entry : inner.entries) table.entries.push_back(std::move(entry));
  else
    table.entries.push_back({std::string(kValueKey), {}, std::move(inner)});
  return table;
}

std::vector<Part> VariantKind::parts(void* value) const {
  const Alternative& alternative = alternatives()[index(value)];
  return alternative.kind ? alternative.kind->parts(held(value)) : std::vector<Part>();
}

bool VariantKind::step(void* value, std::string_view name, bool typed, Part& part) const {
  const Alternative& alternative = alternatives()[index(value)];
  return alternative.kind && alternative.kind->step(held(value), name, typed, part);
}

void VariantKind::validate(const void* value, const At& at) const {
  const Alternative& alternative = alternatives()[index(value)];
  if (alternative.kind) alternative.kind->validate(held(const_cast<void*>(value)), at);
}

}  // namespace shoal::config
