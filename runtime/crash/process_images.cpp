#include <shoal/internal/runtime/crash/process_images.h>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <shoal/ipc/fd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace shoal {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

bool read_at(const Fd& file, std::uint64_t offset, void* into, std::size_t bytes) {
  return offset <= std::uint64_t(INT64_MAX) && ::pread(file.get(), into, bytes, off_t(offset)) == ssize_t(bytes);
}

/// The linker's hash in a segment of notes; empty if it has none.
std::vector<std::uint8_t> build_id_in(const std::vector<char>& notes) {
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= notes.size();) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const std::uint64_t name = at + sizeof note, contents = name + ((std::uint64_t(note.n_namesz) + 3) & ~3ull),
                        end = contents + note.n_descsz;
    if (end > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return {notes.begin() + std::ptrdiff_t(contents), notes.begin() + std::ptrdiff_t(end)};
    at = (end + 3) & ~3ull;
  }
  return {};
}

}  // namespace

ProcessImages::ProcessImages(pid_t process) : process_(process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0, offset = 0, inode = 0;
    int path_at = 0;
    // begin-end rwxp offset major:minor inode      path
    if (std::sscanf(line.c_str(), "%llx-%llx %*4s %llx %*s %llu %n", &begin, &end, &offset, &inode, &path_at) < 4)
      continue;
    if (inode == 0 || path_at <= 0 || std::size_t(path_at) >= line.size()) continue;
    const std::string path = line.substr(std::size_t(path_at));
    // The mappings of an image follow each other, the first one from offset 0.
    if (!images_.empty() && images_.back().path == path && offset != 0)
      images_.back().end = end;
    else if (offset == 0)
      images_.push_back({begin, end, path});
  }
}

CodePlace ProcessImages::place_of(std::uint64_t address) {
  const auto after = std::ranges::upper_bound(images_, address, {}, &Image::begin);
  if (after == images_.begin() || address >= std::prev(after)->end) return {"", {}, address};
  const Image& image = *std::prev(after);
  std::string path = image.path;
  // Its file has been replaced, as by a new build; the kernel still has the program's own.
  if (path.ends_with(kDeleted)) path = fmt::format("/proc/{}/exe", process_);
  auto head = heads_.find(image.path);
  if (head == heads_.end()) {
    // As the process sees the path, which may live in a container.
    Head found = read_head(image.path.ends_with(kDeleted) ? path : fmt::format("/proc/{}/root{}", process_, path));
    if (found.build_id.empty()) found = read_head(path);
    head = heads_.emplace(image.path, std::move(found)).first;
  }
  return {path, head->second.build_id, address - image.begin + head->second.first_address};
}

ProcessImages::Head ProcessImages::read_head(const std::string& path) {
  Head result;
  const Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  ElfW(Ehdr) head;
  if (!file || !read_at(file, 0, &head, sizeof head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_phentsize != sizeof(ElfW(Phdr)))
    return result;
  bool has_address = false;
  for (int i = 0; i < head.e_phnum; ++i) {
    ElfW(Phdr) segment;
    if (!read_at(file, head.e_phoff + std::uint64_t(i) * sizeof segment, &segment, sizeof segment)) break;
    constexpr std::uint64_t kMostNotes = 1 << 16;  // of a file that may be any
    if (segment.p_type == PT_LOAD && !has_address) {
      has_address = true;
      result.first_address = segment.p_vaddr - segment.p_offset;
    } else if (segment.p_type == PT_NOTE && result.build_id.empty() && segment.p_filesz <= kMostNotes) {
      std::vector<char> notes(segment.p_filesz);
      if (read_at(file, segment.p_offset, notes.data(), notes.size())) result.build_id = build_id_in(notes);
    }
  }
  return result;
}

}  // namespace shoal
