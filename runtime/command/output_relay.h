// What ranks write, line by line, to the launcher's own output and into files.
#pragma once

#include <shoal/ipc/fd.h>

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace shoal::command {

/// The last bytes of a stream. One writer; read after the stream's end, or for what there is by then.
class OutputTail {
 public:
  static constexpr std::size_t kBytes = 4096;
  void add(const char* bytes, std::size_t count);
  /// From a line's beginning on.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string kept_;
  bool cut_ = false;  // there was more before it
};

/// Reads pipes in a thread of its own, so that a terminal that takes nothing (Ctrl-S, a pager) holds up the ranks, as
/// it would without a pipe, but not the launcher, which has to answer signals. Lines come out whole, each behind its
/// prefix; what a rank wrote last comes out without a line end too. Owned by the launcher. A rank's death ends its
/// pipes, as long as it has left nobody behind who has them.
class OutputRelay {
 public:
  OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  ~OutputRelay();

  struct Source {
    Fd pipe;                           // reading end
    int console = -1;                  // 1 or 2: this process's; -1: not there
    std::string prefix;                // of each line on the console
    Fd file;                           // gets the bytes as they are; empty: none
    std::shared_ptr<OutputTail> tail;  // may be null
  };
  void add(Source source);
  /// Waits until all pipes have ended and everything is written.
  void drain();

 private:
  struct Stream {
    Source source;
    std::string line;  // begun
  };
  void run();
  /// False at the pipe's end.
  bool relay(Stream& stream);
  void write_line(Stream& stream, const char* text, std::size_t size);

  Fd wake_, woken_;
  std::mutex mutex_;  // of what follows
  std::list<Stream> added_;
  bool ending_ = false;
  std::list<Stream> streams_;  // the thread's own
  std::thread thread_;
};

}  // namespace shoal::command
