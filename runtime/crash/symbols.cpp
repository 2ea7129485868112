#include <shoal/internal/runtime/crash/symbols.h>

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <shoal/internal/runtime/crash/source_lines.h>
#include <shoal/ipc/fd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

namespace shoal {
namespace {

/// A file of ELF, mapped. Every position in it is checked: it may be any file.
class ElfFile {
 public:
  static std::optional<ElfFile> open(const std::string& path) {
    Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    struct stat status;
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size < off_t(sizeof(ElfW(Ehdr))))
      return std::nullopt;
    void* at = ::mmap(nullptr, std::size_t(status.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (at == MAP_FAILED) return std::nullopt;
    ElfFile result(static_cast<const char*>(at), std::size_t(status.st_size));
    if (std::memcmp(result.head().e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
    return result;
  }
  ElfFile(ElfFile&& other) noexcept : bytes_(std::exchange(other.bytes_, nullptr)), size_(other.size_) {}
  ~ElfFile() {
    if (bytes_) ::munmap(const_cast<char*>(bytes_), size_);
  }

  bool has_build_id(const std::vector<std::uint8_t>& id) const {
    for (const auto& section : sections()) {
      if (section.sh_type != SHT_NOTE) continue;
      for (std::uint64_t at = section.sh_offset, end = at + section.sh_size; at < end;) {
        const auto* note = part<ElfW(Nhdr)>(at, 1);
        if (!note) break;
        const std::uint64_t contents = at + sizeof *note + ((note->n_namesz + 3) & ~3u);
        const char* found = part<char>(contents, note->n_descsz);
        if (note->n_type == NT_GNU_BUILD_ID && found && note->n_descsz >= id.size() &&
            std::memcmp(found, id.data(), id.size()) == 0)
          return true;
        at = contents + ((note->n_descsz + 3) & ~3u);
      }
    }
    return false;
  }

  bool has_symbols() const { return symbol_table(SHT_SYMTAB) != nullptr; }

  LineSections line_sections() const {
    return {bytes_of(".debug_line"), bytes_of(".debug_line_str"), bytes_of(".debug_str")};
  }

  /// The mangled names of the functions that the offsets lie in, which are sorted; empty where there is none. One pass
  /// over the symbols, of which a large library has a million.
  std::vector<std::string> names_of(const std::vector<std::uint64_t>& offsets) const {
    std::vector<std::string> found(offsets.size());
    std::vector<bool> is_sure(offsets.size(), false);
    for (const std::uint32_t type : {SHT_SYMTAB, SHT_DYNSYM}) {
      const auto* table = symbol_table(type);
      if (!table || table->sh_link >= sections().size()) continue;
      const auto& names = sections()[table->sh_link];
      const std::size_t count = table->sh_size / sizeof(ElfW(Sym));
      const auto* symbols = part<ElfW(Sym)>(table->sh_offset, count);
      std::vector<bool> is_open(offsets.size());
      for (std::size_t i = 0; i < offsets.size(); ++i) is_open[i] = found[i].empty();
      for (std::size_t i = 0; symbols && i < count; ++i) {
        const auto& symbol = symbols[i];
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF ||
            symbol.st_name >= names.sh_size)
          continue;
        for (auto at = std::ranges::lower_bound(offsets, symbol.st_value);
             at != offsets.end() && *at - symbol.st_value < symbol.st_size; ++at) {
          const auto place = std::size_t(at - offsets.begin());
          if (!is_open[place] || is_sure[place]) continue;
          const std::size_t longest = names.sh_size - symbol.st_name;
          const char* name = part<char>(names.sh_offset + symbol.st_name, longest);
          if (!name) continue;
          found[place].assign(name, ::strnlen(name, longest));
          // Of several, the one that users know.
          is_sure[place] = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
        }
      }
    }
    return found;
  }

 private:
  struct Sections {
    const ElfW(Shdr) * first;
    std::size_t count;
    const ElfW(Shdr) * begin() const { return first; }
    const ElfW(Shdr) * end() const { return first + count; }
    std::size_t size() const { return count; }
    const ElfW(Shdr) & operator[](std::size_t i) const { return first[i]; }
  };

  ElfFile(const char* bytes, std::size_t size) : bytes_(bytes), size_(size) {}

  template <class T>
  const T* part(std::uint64_t offset, std::size_t count) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T) || offset % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T*>(bytes_ + offset);
  }
  const ElfW(Ehdr) & head() const { return *reinterpret_cast<const ElfW(Ehdr)*>(bytes_); }
  Sections sections() const {
    const auto* first =
        head().e_shentsize == sizeof(ElfW(Shdr)) ? part<ElfW(Shdr)>(head().e_shoff, head().e_shnum) : nullptr;
    return {first, first ? head().e_shnum : std::size_t(0)};
  }
  const ElfW(Shdr) * symbol_table(std::uint32_t type) const {
    for (const auto& section : sections())
      if (section.sh_type == type) return &section;
    return nullptr;
  }

  /// Of the section of this name; empty if it is not there, or compressed.
  std::string_view bytes_of(std::string_view name) const {
    if (head().e_shstrndx >= sections().size()) return {};
    const auto& names = sections()[head().e_shstrndx];
    for (const auto& section : sections()) {
      if (section.sh_name >= names.sh_size || section.sh_type == SHT_NOBITS || (section.sh_flags & SHF_COMPRESSED))
        continue;
      const std::size_t longest = names.sh_size - section.sh_name;
      const char* own = part<char>(names.sh_offset + section.sh_name, longest);
      if (!own || std::string_view(own, ::strnlen(own, longest)) != name) continue;
      const char* bytes = part<char>(section.sh_offset, section.sh_size);
      return bytes ? std::string_view(bytes, section.sh_size) : std::string_view();
    }
    return {};
  }

  const char* bytes_;
  std::size_t size_;
};

std::string demangle(const std::string& name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                   &std::free);
  return status == 0 ? text.get() : name;
}

/// The files to ask for an image's names, best first.
std::vector<ElfFile> files_of(const CodePlace& place) {
  std::vector<ElfFile> files;
  if (place.image.empty() || place.build_id.empty()) return files;
  std::string digits;
  for (const auto byte : place.build_id) digits += fmt::format("{:02x}", byte);
  // /proc/self/exe: the program's file may have been replaced since it was started.
  for (const std::string& path : {place.image, std::string("/proc/self/exe"),
                                  fmt::format("/usr/lib/debug/.build-id/{}/{}.debug", digits.substr(0, 2),
                                              digits.substr(std::min<std::size_t>(2, digits.size())))})
    if (auto file = ElfFile::open(path); file && file->has_build_id(place.build_id)) {
      files.push_back(std::move(*file));
      if (files.back().has_symbols()) break;
    }
  return files;
}

/// To the frames of one image.
void add_names(const std::vector<ElfFile>& files, const std::string& image, std::vector<StackFrame>& frames) {
  std::vector<StackFrame*> own;
  std::vector<std::uint64_t> offsets;
  for (StackFrame& frame : frames)
    if (frame.image == image) {
      own.push_back(&frame);
      offsets.push_back(frame.offset);
    }
  std::ranges::sort(offsets);
  const auto repeated = std::ranges::unique(offsets);
  offsets.erase(repeated.begin(), repeated.end());
  std::vector<std::string> names(offsets.size());
  // The best file comes last: see files_of.
  for (const ElfFile& file : std::views::reverse(files)) {
    std::vector<std::string> own_names = file.names_of(offsets);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].empty() && !own_names[i].empty()) names[i] = demangle(own_names[i]);
  }
  for (StackFrame* frame : own)
    frame->function = names[std::size_t(std::ranges::lower_bound(offsets, frame->offset) - offsets.begin())];
  for (const ElfFile& file : files) {
    const std::vector<SourceLine> lines = find_source_lines(file.line_sections(), offsets);
    for (StackFrame* frame : own) {
      const auto& line = lines[std::size_t(std::ranges::lower_bound(offsets, frame->offset) - offsets.begin())];
      if (frame->line != 0) continue;
      frame->file = line.file;
      frame->line = line.line;
    }
  }
}

}  // namespace

std::string StackFrame::text() const {
  std::string where = image.empty() ? fmt::format("0x{:x}", offset) : fmt::format("{}+0x{:x}", image, offset);
  if (function.empty()) return where;
  return line == 0 ? fmt::format("{} in {}", function, where)
                   : fmt::format("{} at {}:{} in {}", function, file, line, where);
}

std::vector<StackFrame> symbolize(const std::vector<CodePlace>& places) {
  std::map<std::string, std::vector<ElfFile>> images;
  std::vector<StackFrame> frames;
  for (const CodePlace& place : places) {
    if (!images.contains(place.image)) images.emplace(place.image, files_of(place));
    StackFrame frame;
    frame.image = place.image;
    frame.offset = place.offset;
    frames.push_back(std::move(frame));
  }
  for (const auto& [image, files] : images) add_names(files, image, frames);
  return frames;
}

}  // namespace shoal
