#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/command/output_relay.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace shoal::command {
namespace {

/// Longer lines come out in parts.
constexpr std::size_t kLongestLine = 1 << 16;

/// What cannot be written (a full disk, a reader that has gone) is lost: the run goes on.
void write_all(int descriptor, const char* bytes, std::size_t count) noexcept {
  while (count > 0) {
    const ssize_t written = ::write(descriptor, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd wait{descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
      continue;
    }
    if (written <= 0) return;
    bytes += written;
    count -= std::size_t(written);
  }
}

}  // namespace

void OutputTail::add(const char* bytes, std::size_t count) {
  std::lock_guard lock(mutex_);
  kept_.append(bytes, count);
  if (kept_.size() <= 2 * kBytes) return;
  kept_.erase(0, kept_.size() - kBytes);
  cut_ = true;
}

std::string OutputTail::text() const {
  std::lock_guard lock(mutex_);
  if (!cut_ && kept_.size() <= kBytes) return kept_;
  const std::string last = kept_.substr(kept_.size() - std::min(kept_.size(), kBytes));
  const auto line = last.find('\n');
  return line == std::string::npos ? last : last.substr(line + 1);
}

OutputRelay::OutputRelay() {
  PipeEnds pipe = make_pipe();
  woken_ = std::move(pipe.reading);
  wake_ = std::move(pipe.writing);
  // Signals are for the launcher's own thread; a reader of our output that has gone is seen by write().
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputRelay::~OutputRelay() { drain(); }

void OutputRelay::add(Source source) {
  {
    std::lock_guard lock(mutex_);
    added_.push_back({std::move(source), ""});
  }
  write_all(wake_.get(), "", 1);
}

void OutputRelay::drain() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  write_all(wake_.get(), "", 1);
  thread_.join();
}

void OutputRelay::run() {
  std::vector<pollfd> polled;
  for (;;) {
    bool ending;
    {
      std::lock_guard lock(mutex_);
      streams_.splice(streams_.end(), added_);
      ending = ending_;
    }
    if (ending && streams_.empty()) return;
    polled.assign({{woken_.get(), POLLIN, 0}});
    for (const Stream& stream : streams_) polled.push_back({stream.source.pipe.get(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents) {
      char bytes[64];
      [[maybe_unused]] auto got = ::read(woken_.get(), bytes, sizeof bytes);
    }
    auto next = polled.begin() + 1;
    for (auto stream = streams_.begin(); stream != streams_.end(); ++next)
      stream = next->revents == 0 || relay(*stream) ? std::next(stream) : streams_.erase(stream);
  }
}

bool OutputRelay::relay(Stream& stream) {
  char bytes[16384];
  const ssize_t got = ::read(stream.source.pipe.get(), bytes, sizeof bytes);
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) {
    if (!stream.line.empty()) write_line(stream, "\n", 1);
    return false;
  }
  const Source& source = stream.source;
  if (source.file) write_all(source.file.get(), bytes, std::size_t(got));
  if (source.tail) source.tail->add(bytes, std::size_t(got));
  if (source.console < 0) return true;
  const char* at = bytes;
  const char* end = bytes + got;
  while (const auto* line_end = static_cast<const char*>(std::memchr(at, '\n', std::size_t(end - at)))) {
    write_line(stream, at, std::size_t(line_end + 1 - at));
    at = line_end + 1;
  }
  stream.line.append(at, std::size_t(end - at));
  if (stream.line.size() > kLongestLine) write_line(stream, "\n", 1);
  return true;
}

void OutputRelay::write_line(Stream& stream, const char* text, std::size_t size) {
  // In one piece: other processes may write to the same terminal or file.
  std::string whole = stream.source.prefix + stream.line;
  whole.append(text, size);
  stream.line.clear();
  write_all(stream.source.console, whole.data(), whole.size());
}

}  // namespace shoal::command
