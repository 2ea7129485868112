#include <shoal/internal/runtime/command/output/output_relay.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
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

/// What the thread works with, also after the OutputRelay has gone.
struct OutputRelay::Work {
  struct Stream {
    Source source;
    std::string line = {};         // begun
    bool after_return = false;     // what came last ended in a carriage return: a line feed belongs to it
    std::optional<int> left = {};  // bytes still to come; nothing: as long as the pipe is open
  };
  Work();
  void wake() const { write_all(wake_end.get(), "", 1); }
  void run();
  /// False at the pipe's end.
  static bool relay(Stream& stream);
  static void relay_text(Stream& stream, const char* at, const char* end);
  static void write_line(Stream& stream, const char* text, std::size_t size);

  Fd wake_end, woken_end;
  Fd working_end, finished_end;  // of a pipe that ends with the thread's work
  std::mutex mutex;              // of what follows
  std::list<Stream> added;
  bool ending = false;
  std::list<Stream> streams;  // the thread's own
};

OutputRelay::Work::Work() {
  PipeEnds pipe = make_pipe();
  woken_end = std::move(pipe.reading);
  wake_end = std::move(pipe.writing);
  pipe = make_pipe();
  finished_end = std::move(pipe.reading);
  working_end = std::move(pipe.writing);
}

OutputRelay::OutputRelay() : work_(std::make_shared<Work>()) {
  // Signals are for the launcher's own thread; a reader of our output that has gone is seen by write().
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([work = work_] { work->run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputRelay::~OutputRelay() {
  finish();
  drain();
}

void OutputRelay::add(Source source) {
  {
    std::lock_guard lock(work_->mutex);
    work_->added.push_back({std::move(source)});
  }
  work_->wake();
}

void OutputRelay::finish() {
  {
    std::lock_guard lock(work_->mutex);
    work_->ending = true;
  }
  work_->wake();
}

int OutputRelay::finished() const { return work_->finished_end.get(); }

void OutputRelay::drain() {
  if (thread_.joinable()) thread_.join();
}

void OutputRelay::abandon() {
  if (thread_.joinable()) thread_.detach();
}

void OutputRelay::Work::run() {
  std::vector<pollfd> polled;
  for (bool counted = false;;) {
    bool is_last;
    {
      std::lock_guard lock(mutex);
      streams.splice(streams.end(), added);
      is_last = ending;
    }
    if (is_last && !std::exchange(counted, true))
      for (Stream& stream : streams) {
        // Not more than is there now: somebody who has the other end could go on writing for ever.
        int bytes = 0;
        ::ioctl(stream.source.pipe.get(), FIONREAD, &bytes);
        stream.left = bytes;
      }
    if (is_last)
      std::erase_if(streams, [](Stream& stream) {
        if (stream.left != 0) return false;
        if (!stream.line.empty()) write_line(stream, "\n", 1);
        return true;
      });
    if (is_last && streams.empty()) break;
    polled.assign({{woken_end.get(), POLLIN, 0}});
    for (const Stream& stream : streams) polled.push_back({stream.source.pipe.get(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents) {
      char bytes[64];
      [[maybe_unused]] auto got = ::read(woken_end.get(), bytes, sizeof bytes);
    }
    auto next = polled.begin() + 1;
    for (auto stream = streams.begin(); stream != streams.end(); ++next)
      stream = next->revents == 0 || relay(*stream) ? std::next(stream) : streams.erase(stream);
  }
  working_end.reset();
}

bool OutputRelay::Work::relay(Stream& stream) {
  char bytes[16384];
  const std::size_t most = std::min(sizeof bytes, std::size_t(stream.left.value_or(sizeof bytes)));
  const ssize_t got = ::read(stream.source.pipe.get(), bytes, most);
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) {
    if (!stream.line.empty()) write_line(stream, "\n", 1);
    return false;
  }
  if (stream.left) *stream.left -= int(got);
  const Source& source = stream.source;
  if (source.file) write_all(source.file.get(), bytes, std::size_t(got));
  if (source.tail) source.tail->add(bytes, std::size_t(got));
  if (source.console >= 0) relay_text(stream, bytes, bytes + got);
  return true;
}

void OutputRelay::Work::relay_text(Stream& stream, const char* at, const char* end) {
  if (std::exchange(stream.after_return, false) && *at == '\n') write_all(stream.source.console, at++, 1);
  for (const char* stop; (stop = std::find_if(at, end, [](char c) { return c == '\n' || c == '\r'; })) != end;) {
    if (*stop == '\r' && stop + 1 != end && stop[1] == '\n') ++stop;
    ++stop;
    write_line(stream, at, std::size_t(stop - at));
    stream.after_return = stop == end && stop[-1] == '\r';
    at = stop;
  }
  stream.line.append(at, std::size_t(end - at));
  if (stream.line.size() > kLongestLine) write_line(stream, "\n", 1);
}

void OutputRelay::Work::write_line(Stream& stream, const char* text, std::size_t size) {
  // In one piece: other processes may write to the same terminal or file.
  std::string whole = stream.source.prefix + stream.line;
  whole.append(text, size);
  stream.line.clear();
  write_all(stream.source.console, whole.data(), whole.size());
}

}  // namespace shoal::command
