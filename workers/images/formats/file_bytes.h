// Whole files in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace shoal {

/// The file's bytes, in place of what `bytes` held; its memory is reused. Throws DatasetError that names the file.
void read_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes);

/// Fills `bytes` with the file. Throws DatasetError that names it if it can't be read, or has another size by now.
void read_file_into(const std::filesystem::path& path, std::span<std::uint8_t> bytes);

/// Throws DatasetError: the file can't be `what` ("opened", "written"), with the text of this errno.
[[noreturn]] void refuse_file(const std::filesystem::path& path, const char* what, int error);

}  // namespace shoal
