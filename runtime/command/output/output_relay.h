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
/// prefix, and so does what ends in a carriage return (a progress bar); what a rank wrote last comes out without a line
/// end too. Owned by the launcher. A rank's death ends its pipes, unless it has left somebody behind who has them: so
/// the end of a pipe is not waited for at the end of the run.
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
  /// No more is to come: the thread relays what is in the pipes at that moment, whoever still has their other ends, and
  /// then ends.
  void finish();
  /// Readable when it has.
  int finished() const;
  /// Waits for that; the destructor does it too, after finish().
  void drain();
  /// Does not wait, neither here nor in the destructor: what is not written by then may be lost.
  void abandon();

 private:
  struct Work;
  std::shared_ptr<Work> work_;  // the thread has it too
  std::thread thread_;
};

}  // namespace shoal::command
