#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <fmt/format.h>

namespace shoal {
namespace {

std::string text_of(const std::filesystem::path& file, std::uint64_t offset, const std::string& field,
                    const std::string& what) {
  const std::string place = offset == CheckpointError::kNoOffset ? std::string() : fmt::format(" at byte {},", offset);
  return fmt::format("{}:{} {}: {}", file.native(), place, field, what);
}

}  // namespace

CheckpointError::CheckpointError(const std::filesystem::path& file, std::uint64_t offset, const std::string& field,
                                 const std::string& what)
    : Error(text_of(file, offset, field, what)), file_(file), offset_(offset), field_(field) {}

CheckpointNotSaved::CheckpointNotSaved(std::int64_t step, const std::string& why)
    : Error(fmt::format("the checkpoint of step {} was not written: {}", step, why)), step_(step) {}

}  // namespace shoal
