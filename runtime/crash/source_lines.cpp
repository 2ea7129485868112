#include <shoal/internal/runtime/crash/source_lines.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

namespace shoal {
namespace {

/// Reads on through bytes that may be any: past their end everything is 0, and is_bad() says so.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  bool is_bad() const { return bad_; }
  bool at_end() const { return bad_ || at_ >= bytes_.size(); }

  template <class T>
  T number() {
    T value{};
    if (!has(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::uint64_t offset(bool is_64) { return is_64 ? number<std::uint64_t>() : number<std::uint32_t>(); }
  std::uint64_t unsigned_leb() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::int64_t signed_leb() {
    std::uint64_t value = 0;
    for (int shift = 0;;) {
      const auto byte = number<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t(byte & 0x7f) << shift;
      shift += 7;
      if (byte < 0x80) return std::int64_t(byte & 0x40 && shift < 64 ? value | ~std::uint64_t(0) << shift : value);
    }
  }
  std::string_view text() {
    const auto end = bytes_.find('\0', at_);
    if (bad_ || end == std::string_view::npos) {
      bad_ = true;
      return {};
    }
    const std::string_view found = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  std::string_view part(std::uint64_t size) {
    if (!has(size)) return {};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::string_view rest() { return bad_ ? std::string_view() : part(bytes_.size() - at_); }

 private:
  bool has(std::uint64_t size) {
    bad_ = bad_ || at_ > bytes_.size() || size > bytes_.size() - at_;
    return !bad_;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

struct UnitHead {
  int version = 0;
  bool is_64 = false;
  std::uint8_t instruction_bytes = 1, line_range = 1, opcode_base = 1;
  std::int8_t line_base = 0;
  std::string_view opcode_lengths, tables, program;
};

/// False if the rest of the unit is not understood.
bool read_head(Cursor& unit, bool is_64, UnitHead& head) {
  head.is_64 = is_64;
  head.version = unit.number<std::uint16_t>();
  if (head.version < 2 || head.version > 5) return false;
  if (head.version == 5) unit.part(2);  // sizes of addresses and segments
  Cursor rest(unit.part(unit.offset(is_64)));
  head.instruction_bytes = rest.number<std::uint8_t>();
  if (head.version >= 4) rest.number<std::uint8_t>();  // operations of an instruction: of VLIW machines
  rest.number<std::uint8_t>();                         // whether each row begins a statement
  head.line_base = rest.number<std::int8_t>();
  head.line_range = rest.number<std::uint8_t>();
  head.opcode_base = rest.number<std::uint8_t>();
  if (rest.is_bad() || head.line_range == 0 || head.opcode_base == 0) return false;
  head.opcode_lengths = rest.part(head.opcode_base - 1u);
  head.tables = rest.rest();
  head.program = unit.rest();
  return !rest.is_bad();
}

/// Directories and files of a unit.
class FileTable {
 public:
  FileTable(const UnitHead& head, const LineSections& sections)
      : cursor_(head.tables), is_64_(head.is_64), sections_(sections), first_(head.version == 5 ? 0 : 1) {
    if (head.version == 5) {
      directories_ = read_entries();
      files_ = read_entries();
    } else {
      read_old();
    }
  }

  std::string path(std::uint64_t file) const {
    if (file < first_ || file - first_ >= files_.size()) return "";
    const Entry& entry = files_[file - first_];
    std::filesystem::path path(entry.path);
    // The first directory is the compiler's own, which others may be relative to.
    for (std::uint64_t directory : {entry.directory, std::uint64_t(0)})
      if (path.is_relative() && directory < directories_.size())
        path = std::filesystem::path(directories_[directory].path) / path;
    return path.lexically_normal().string();
  }

 private:
  struct Entry {
    std::string_view path;
    std::uint64_t directory = 0;
  };

  void read_old() {
    directories_.emplace_back();  // the compiler's own: not said
    for (std::string_view text; !(text = cursor_.text()).empty();) directories_.push_back({text, 0});
    for (std::string_view text; !(text = cursor_.text()).empty();) {
      files_.push_back({text, cursor_.unsigned_leb()});
      cursor_.unsigned_leb();  // time
      cursor_.unsigned_leb();  // size
    }
  }

  std::vector<Entry> read_entries() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> format(cursor_.number<std::uint8_t>());
    for (auto& [content, form] : format) {
      content = cursor_.unsigned_leb();
      form = cursor_.unsigned_leb();
    }
    std::vector<Entry> entries;
    for (std::uint64_t left = cursor_.unsigned_leb(); left > 0 && !format.empty() && !cursor_.at_end(); --left) {
      Entry entry;
      for (const auto& [content, form] : format) read_value(content, form, entry);
      entries.push_back(entry);
    }
    return entries;
  }

  void read_value(std::uint64_t content, std::uint64_t form, Entry& entry) {
    constexpr std::uint64_t kPath = 1, kDirectory = 2;
    std::string_view text;
    std::uint64_t number = 0;
    switch (form) {
      case 0x08:  // DW_FORM_string
        text = cursor_.text();
        break;
      case 0x0e:  // DW_FORM_strp
        text = text_at(sections_.strings, cursor_.offset(is_64_));
        break;
      case 0x1f:  // DW_FORM_line_strp
        text = text_at(sections_.line_strings, cursor_.offset(is_64_));
        break;
      case 0x0b:  // DW_FORM_data1
        number = cursor_.number<std::uint8_t>();
        break;
      case 0x05:  // DW_FORM_data2
        number = cursor_.number<std::uint16_t>();
        break;
      case 0x0f:  // DW_FORM_udata
        number = cursor_.unsigned_leb();
        break;
      case 0x1e:  // DW_FORM_data16: a sum of the file's bytes
        cursor_.part(16);
        break;
      default:
        cursor_.part(~std::uint64_t(0));  // not known how long: the table ends here
    }
    if (content == kPath) entry.path = text;
    if (content == kDirectory) entry.directory = number;
  }

  static std::string_view text_at(std::string_view section, std::uint64_t offset) {
    if (offset >= section.size()) return {};
    Cursor at(section.substr(offset));
    return at.text();
  }

  Cursor cursor_;
  bool is_64_;
  const LineSections& sections_;
  std::uint64_t first_;
  std::vector<Entry> directories_, files_;
};

/// The machine that a line program is written for: each row that it gives says from which address on a line is.
class LineMachine {
 public:
  explicit LineMachine(const UnitHead& head) : head_(head), program_(head.program) {}

  /// Calls row(first address, address behind it, file, line) for each piece of code.
  template <class Row>
  void run(Row&& row) {
    while (!program_.at_end()) {
      const auto opcode = program_.number<std::uint8_t>();
      if (opcode >= head_.opcode_base) {
        const int adjusted = opcode - head_.opcode_base;
        now_.address += std::uint64_t(adjusted / head_.line_range) * head_.instruction_bytes;
        now_.line += head_.line_base + adjusted % head_.line_range;
        emit(row);
      } else if (opcode == 0) {
        extended(row);
      } else {
        standard(opcode, row);
      }
    }
  }

 private:
  struct State {
    std::uint64_t address = 0, file = 1;
    std::int64_t line = 1;
  };

  template <class Row>
  void emit(Row&& row) {
    if (in_sequence_ && last_.address < now_.address) row(last_.address, now_.address, last_.file, last_.line);
    // Of several rows for one address the last one counts.
    last_ = now_;
    in_sequence_ = true;
  }

  template <class Row>
  void extended(Row&& row) {
    Cursor operands(program_.part(program_.unsigned_leb()));
    switch (operands.number<std::uint8_t>()) {
      case 1:  // DW_LNE_end_sequence
        emit(row);
        now_ = {};
        in_sequence_ = false;
        break;
      case 2:  // DW_LNE_set_address
        now_.address = operands.number<std::uint64_t>();
        break;
      default:
        break;
    }
  }

  template <class Row>
  void standard(std::uint8_t opcode, Row&& row) {
    switch (opcode) {
      case 1:  // DW_LNS_copy
        emit(row);
        break;
      case 2:  // DW_LNS_advance_pc
        now_.address += program_.unsigned_leb() * head_.instruction_bytes;
        break;
      case 3:  // DW_LNS_advance_line
        now_.line += program_.signed_leb();
        break;
      case 4:  // DW_LNS_set_file
        now_.file = program_.unsigned_leb();
        break;
      case 8:  // DW_LNS_const_add_pc
        now_.address += std::uint64_t((255 - head_.opcode_base) / head_.line_range) * head_.instruction_bytes;
        break;
      case 9:  // DW_LNS_fixed_advance_pc
        now_.address += program_.number<std::uint16_t>();
        break;
      default:
        for (int i = 0; i < head_.opcode_lengths[opcode - 1u]; ++i) program_.unsigned_leb();
    }
  }

  const UnitHead& head_;
  Cursor program_;
  State now_, last_;
  bool in_sequence_ = false;
};

}  // namespace

std::vector<SourceLine> find_source_lines(const LineSections& sections, const std::vector<std::uint64_t>& addresses) {
  std::vector<SourceLine> found(addresses.size());
  std::vector<std::pair<std::uint64_t, std::size_t>> wanted;  // address, and which one it is
  wanted.reserve(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) wanted.emplace_back(addresses[i], i);
  std::ranges::sort(wanted);
  for (Cursor all(sections.line); !all.at_end();) {
    std::uint64_t length = all.number<std::uint32_t>();
    const bool is_64 = length == 0xffffffff;
    if (is_64) length = all.number<std::uint64_t>();
    const std::string_view bytes = all.part(length);
    Cursor unit(bytes);
    UnitHead head;
    if (!read_head(unit, is_64, head)) continue;
    LineMachine(head).run([&](std::uint64_t begin, std::uint64_t end, std::uint64_t file, std::int64_t line) {
      auto at = std::ranges::lower_bound(wanted, std::pair(begin, std::size_t(0)));
      for (; at != wanted.end() && at->first < end; ++at)
        // Lines that a linker has thrown away begin at 0 and may cover anything: the first that is there stays.
        if (found[at->second].line == 0 && begin != 0)
          found[at->second] = {FileTable(head, sections).path(file), int(std::clamp<std::int64_t>(line, 0, 1 << 30))};
    });
  }
  return found;
}

}  // namespace shoal
