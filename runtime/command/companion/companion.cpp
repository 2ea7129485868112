#include <shoal/internal/runtime/command/companion/companion.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <filesystem>

namespace shoal::command {

std::string find_companion(const std::string& name, const std::string& purpose) {
  const auto own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& path : {own / name, own / "../libexec/shoal" / name})
    if (::access(path.c_str(), X_OK) == 0) return path;
  throw Error(
      fmt::format("{0} needs the program {1}, which is neither in {2} nor in {2}/../libexec/shoal: build shoal with "
                  "SHOAL_TENSORS=ON",
                  purpose, name, own.string()));
}

}  // namespace shoal::command
