#include <shoal/internal/runtime/call/image_function.h>

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <shoal/ipc/error.h>

#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

std::uintptr_t round_up_to_word(std::uintptr_t size) { return (size + 3) & ~std::uintptr_t(3); }

/// The note's bytes as hex digits; empty if there is none.
std::string build_id_in(const char* note, const char* end) {
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const char* name = note + sizeof header;
    const char* contents = name + round_up_to_word(header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      constexpr const char* kDigits = "0123456789abcdef";
      std::string digits;
      for (unsigned i = 0; i < header.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(contents[i]);
        digits += {kDigits[byte >> 4], kDigits[byte & 15]};
      }
      return digits;
    }
    note = contents + round_up_to_word(header.n_descsz);
  }
  return {};
}

std::string build_id_of(const dl_phdr_info& image) {
  for (int i = 0; i < image.dlpi_phnum; ++i) {
    const auto& segment = image.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    auto* notes = reinterpret_cast<const char*>(image.dlpi_addr + segment.p_vaddr);
    if (std::string id = build_id_in(notes, notes + segment.p_memsz); !id.empty()) return id;
  }
  return {};
}

bool holds(const dl_phdr_info& image, std::uintptr_t address, bool executable) {
  for (int i = 0; i < image.dlpi_phnum; ++i) {
    const auto& segment = image.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (executable && !(segment.p_flags & PF_X))) continue;
    std::uintptr_t start = image.dlpi_addr + segment.p_vaddr;
    if (address >= start && address < start + segment.p_memsz) return true;
  }
  return false;
}

/// dl_iterate_phdr with a callable; stops where it returns true.
template <class Visit>
bool any_image(Visit visit) {
  return ::dl_iterate_phdr(
             [](dl_phdr_info* image, std::size_t, void* data) { return int((*static_cast<Visit*>(data))(*image)); },
             &visit) != 0;
}

std::uintptr_t search(const ImageFunction& name) {
  std::uintptr_t found = 0;
  any_image([&](const dl_phdr_info& image) {
    if (build_id_of(image) != name.build_id) return false;
    std::uintptr_t address = image.dlpi_addr + name.offset;
    if (holds(image, address, true)) found = address;
    return true;
  });
  return found;
}

}  // namespace

ImageFunction name_function(AnyFunction function) {
  auto address = reinterpret_cast<std::uintptr_t>(function);
  ImageFunction name;
  bool found = any_image([&](const dl_phdr_info& image) {
    if (!holds(image, address, true)) return false;
    name = {build_id_of(image), address - image.dlpi_addr, image.dlpi_name ? image.dlpi_name : ""};
    return true;
  });
  if (!found)
    throw std::invalid_argument(
        "the function to start lies in no program or library: code made at run time cannot cross");
  if (name.build_id.empty())
    throw Error(
        fmt::format("{} has no build id, by which a started process finds the function: link it with "
                    "-Wl,--build-id",
                    name.image.empty() ? "the program" : name.image));
  return name;
}

AnyFunction find_function(const ImageFunction& name) {
  std::uintptr_t address = search(name);
  if (address == 0 && !name.image.empty() && ::dlopen(name.image.c_str(), RTLD_NOW)) address = search(name);
  if (address == 0)
    throw Error(
        fmt::format("no image here has the build id {} of {}: the started process runs another build than the "
                    "one that started it",
                    name.build_id, name.image.empty() ? "the starting program" : name.image));
  return reinterpret_cast<AnyFunction>(address);
}

}  // namespace shoal
