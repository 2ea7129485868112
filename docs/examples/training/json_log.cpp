#include "training/json_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <cerrno>
#include <string>

JsonLog::JsonLog(const std::filesystem::path& file) {
  if (file.empty()) return;
  file_ = shoal::lift(shoal::Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)));
  if (!file_) throw shoal::SystemError(fmt::format("opening the log {}", file.native()), errno);
}

void JsonLog::add(const nlohmann::ordered_json& line) {
  if (!file_) return;
  const std::string text = line.dump() + "\n";
  if (::write(file_.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw shoal::SystemError("writing a line of the log", errno);
}
