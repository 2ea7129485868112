// A terminal, or a pipe, that a test writes to and reads from.
#pragma once

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

namespace shoal::test {

/// What a bar or a table writes to: a terminal or a pipe; `text()` is all that came so far.
class Sink {
 public:
  explicit Sink(bool terminal, unsigned short rows = 24, unsigned short columns = 80) {
    if (terminal) {
      winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
      if (::openpty(&read_, &write_, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty");
    } else {
      std::array<int, 2> ends{};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
      read_ = ends[0];
      write_ = ends[1];
    }
    ::fcntl(read_, F_SETFL, O_NONBLOCK);
  }
  ~Sink() {
    ::close(read_);
    ::close(write_);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  [[nodiscard]] int fd() const { return write_; }
  [[nodiscard]] std::string text() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(read_, buffer.data(), buffer.size())) > 0;)
      all.append(buffer.data(), static_cast<std::size_t>(got));
    return all;
  }

 private:
  int read_ = -1;
  int write_ = -1;
};

}  // namespace shoal::test
