#include <shoal/internal/runtime/crash/stack.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <shoal/internal/ipc/base/frame_walk.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace shoal {
namespace {

/// A word of this process's memory, or 0 if nothing is mapped: the kernel looks, so nothing faults.
std::uintptr_t read_word(std::uintptr_t address) {
  std::uintptr_t word = 0;
  const iovec to{&word, sizeof word}, from{reinterpret_cast<void*>(address), sizeof word};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == ssize_t(sizeof word) ? word : 0;
}

/// False if there is no room for more.
bool add_frame(CrashRecord& record, std::uintptr_t address) {
  const std::uint32_t count = record.frame_count.load();
  if (count >= CrashRecord::kMostFrames) return false;
  record.frames[count] = {address, CrashRecord::kNoImage, 0};
  record.frame_count = count + 1;
  return count + 1 < CrashRecord::kMostFrames;
}

/// One line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0, end = 0, offset = 0, inode = 0;
  bool readable = false;
  char path[sizeof(CrashRecord::Image::path)];
};

/// Reads /proc/self/maps through a small buffer of its own.
class MappingReader {
 public:
  // unlifted: read and closed while the process crashes.
  MappingReader() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~MappingReader() {
    if (file_ >= 0) ::close(file_);
  }
  MappingReader(const MappingReader&) = delete;

  /// begin-end rwxp offset major:minor inode      path
  bool next(Mapping& mapping) {
    if (file_ < 0 || peek() < 0) return false;
    mapping.begin = number(16);
    take();
    mapping.end = number(16);
    take();
    mapping.readable = take() == 'r';
    for (int i = 0; i < 4; ++i) take();
    mapping.offset = number(16);
    take();
    while (peek() > ' ') take();
    take();
    mapping.inode = number(10);
    while (peek() == ' ') take();
    std::size_t length = 0;
    for (int character; (character = take()) >= 0 && character != '\n';)
      if (length + 1 < sizeof mapping.path) mapping.path[length++] = char(character);
    mapping.path[length] = '\0';
    return true;
  }

 private:
  int peek() {
    if (at_ == filled_) {
      ssize_t got;
      while ((got = ::read(file_, buffer_, sizeof buffer_)) < 0 && errno == EINTR) continue;
      at_ = 0;
      filled_ = got > 0 ? std::size_t(got) : 0;
      if (filled_ == 0) return -1;
    }
    return static_cast<unsigned char>(buffer_[at_]);
  }
  int take() {
    const int character = peek();
    if (character >= 0) ++at_;
    return character;
  }
  std::uintptr_t number(unsigned base) {
    std::uintptr_t value = 0;
    for (;; ++at_) {
      const int character = peek();
      unsigned digit;
      if (character >= '0' && character <= '9')
        digit = unsigned(character - '0');
      else if (base == 16 && character >= 'a' && character <= 'f')
        digit = unsigned(character - 'a') + 10;
      else
        return value;
      value = value * base + digit;
    }
  }

  int file_;
  std::size_t at_ = 0, filled_ = 0;
  char buffer_[1024];
};

/// Copies the linker's hash of the image. The image's head is mapped, as the caller has seen.
void read_image_head(CrashRecord::Image& image) {
  image.build_id_size = 0;
  image.bias = image.begin;
  ElfW(Ehdr) head;
  std::memcpy(&head, reinterpret_cast<const void*>(image.begin), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ElfW(Phdr)) ||
      head.e_phoff + head.e_phnum * sizeof(ElfW(Phdr)) > image.end - image.begin)
    return;
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(image.begin + head.e_phoff);
  for (int i = 0; i < head.e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD) {
      image.bias = image.begin - (segments[i].p_vaddr - segments[i].p_offset);
      break;
    }
  for (int i = 0; i < head.e_phnum; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    std::uintptr_t note = image.bias + segments[i].p_vaddr;
    const std::uintptr_t end = note + segments[i].p_memsz;
    if (note < image.begin || end > image.end || end < note) continue;
    while (note + sizeof(ElfW(Nhdr)) < end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, reinterpret_cast<const void*>(note), sizeof header);
      const std::uintptr_t name = note + sizeof header, contents = name + ((header.n_namesz + 3) & ~3u);
      if (contents + header.n_descsz > end) break;
      if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
          std::memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
        image.build_id_size = std::min<std::uint32_t>(header.n_descsz, sizeof image.build_id);
        std::memcpy(image.build_id, reinterpret_cast<const void*>(contents), image.build_id_size);
        return;
      }
      note = contents + ((header.n_descsz + 3) & ~3u);
    }
  }
}

/// The image that the address lies in: its mappings follow each other, the first one from offset 0.
bool find_image(std::uintptr_t address, CrashRecord::Image& image) {
  MappingReader reader;
  Mapping mapping;
  std::uintptr_t inode = 0;
  bool found = false;
  while (reader.next(mapping)) {
    if (inode != 0 && mapping.inode == inode && mapping.offset != 0) {
      image.end = mapping.end;
    } else {
      if (found) break;
      inode = mapping.offset == 0 && mapping.readable ? mapping.inode : 0;
      if (inode == 0) continue;
      image.begin = mapping.begin;
      image.end = mapping.end;
      std::memcpy(image.path, mapping.path, sizeof image.path);
    }
    found = found || (mapping.begin <= address && address < mapping.end);
  }
  if (found) read_image_head(image);
  return found;
}

std::uint32_t image_of(CrashRecord& record, std::uintptr_t address) {
  const std::uint32_t count = std::min(record.image_count.load(), CrashRecord::kMostImages);
  for (std::uint32_t i = 0; i < count; ++i)
    if (record.images[i].begin <= address && address < record.images[i].end) return i;
  if (count == CrashRecord::kMostImages || !find_image(address, record.images[count])) return CrashRecord::kNoImage;
  record.image_count = count + 1;
  return count;
}

}  // namespace

void note_stack(CrashRecord& record, const void* context) noexcept {
  record.frame_count = 0;
  record.image_count = 0;
  const Registers registers = registers_in(context);
  if (context) {
    add_frame(record, registers.instruction);
    record.frames[0].image = image_of(record, registers.instruction);
    // A call to nowhere has left its return address on top of the stack, and the unwinder gets no further.
    const std::uintptr_t caller =
        record.frames[0].image == CrashRecord::kNoImage ? read_word(registers.stack) : std::uintptr_t(0);
    if (caller != 0) {
      add_frame(record, caller - 1);
      record.frames[1].image = image_of(record, caller - 1);
      if (record.frames[1].image == CrashRecord::kNoImage) record.frame_count = 1;
    }
  }
  walk_frames(context ? std::optional(registers.instruction) : std::nullopt,
              [&record](std::uintptr_t address) { return add_frame(record, address); });
  for (std::uint32_t i = 0; i < record.frame_count.load(); ++i)
    if (record.frames[i].image == CrashRecord::kNoImage)
      record.frames[i].image = image_of(record, record.frames[i].address);
}

void note_calls(CrashRecord& record, std::span<const std::uintptr_t> calls) noexcept {
  record.frame_count = 0;
  record.image_count = 0;
  for (const std::uintptr_t call : calls) add_frame(record, call);
  for (std::uint32_t i = 0; i < record.frame_count.load(); ++i)
    record.frames[i].image = image_of(record, record.frames[i].address);
}

}  // namespace shoal
