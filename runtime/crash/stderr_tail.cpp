#include <shoal/internal/runtime/crash/stderr_tail.h>

#include <errno.h>
#include <shoal/internal/runtime/crash/handler.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <streambuf>
#include <utility>

namespace shoal {
namespace {

/// DANGER: no lock. One that another thread has at a fork stays locked in the child for ever, and so does one that a
/// signal handler's thread has. Who writes claims its place first: threads that write at once keep their words apart,
/// and only 4 KiB written while one of them copies could mix.
void keep(const char* text, std::size_t size) {
  // What the program forks by itself may outlive this process, and the record would be another's by then.
  CrashRecord* const record = own_crash_record();
  if (!record) return;
  std::uint64_t at = record->tail_written.fetch_add(size);
  const std::uint64_t end = at + size;
  if (size > CrashRecord::kTailBytes) {
    text += size - CrashRecord::kTailBytes;
    at = end - CrashRecord::kTailBytes;
  }
  while (at < end) {
    const std::size_t place = at % CrashRecord::kTailBytes;
    const std::size_t part = std::min<std::uint64_t>(end - at, CrashRecord::kTailBytes - place);
    std::memcpy(record->tail + place, text, part);
    text += part;
    at += part;
  }
}

/// Between a C++ stream and the buffer that it had.
class KeepingBuffer : public std::streambuf {
 public:
  void put_before(std::ostream& stream) {
    to_ = stream.rdbuf();
    stream.rdbuf(this);
  }

 private:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
    const char one = traits_type::to_char_type(character);
    keep(&one, 1);
    return to_->sputc(one);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    keep(text, std::size_t(size));
    return to_->sputn(text, size);
  }
  int sync() override { return to_->pubsync(); }

  std::streambuf* to_ = nullptr;
};

ssize_t write_and_keep(void*, const char* text, std::size_t size) {
  keep(text, size);
  std::size_t written = 0;
  while (written < size) {
    const ssize_t got = ::write(STDERR_FILENO, text + written, size - written);
    if (got >= 0)
      written += std::size_t(got);
    else if (errno != EINTR)
      return 0;  // an error, to stdio
  }
  return ssize_t(size);
}

/// The streams may outlive any order of destruction: never destroyed.
struct Replacements {
  FILE* c_stream = nullptr;
  FILE* wide = nullptr;  // never used: its part for wide characters is c_stream's
  KeepingBuffer cerr, clog;
};

Replacements& replacements() {
  static Replacements* const made = [] {
    auto* fresh = new Replacements;
#ifdef __GLIBC__
    cookie_io_functions_t functions{};
    functions.write = &write_and_keep;
    fresh->c_stream = ::fopencookie(nullptr, "w", functions);
    if (fresh->c_stream) ::setvbuf(fresh->c_stream, nullptr, _IONBF, 0);
    fresh->wide = ::fdopen(STDERR_FILENO, "w");
#endif
    return fresh;
  }();
  return *made;
}

/// In glibc `stderr` is a variable, made to be set. The stream set here says as the original did that it is
/// descriptor 2 (fileno, isatty), and can be reopened.
void replace_c_stream(FILE* stream, FILE* wide) {
  if (!stream) return;
#ifdef __GLIBC__
  constexpr int kHasDescriptor = 0x2000;  // _IO_IS_FILEBUF: what fileno() and freopen() ask for
  stream->_fileno = STDERR_FILENO;
  stream->_flags |= kHasDescriptor;
  // It has none, and freopen() takes any other value for some. With that of a stream on the same descriptor the first
  // fwprintf() makes it a wide stream like any other, which writes past write_and_keep(); with none it prints nothing.
  stream->_wide_data = wide ? wide->_wide_data : nullptr;
  if (wide) stream->_mode = 0;  // not yet one or the other
  stderr = stream;
#endif
}

}  // namespace

void prepare_stderr_tail() { replacements(); }

void keep_stderr_tail() {
  static bool kept = false;
  if (std::exchange(kept, true)) return;
  Replacements& own_streams = replacements();
  replace_c_stream(own_streams.c_stream, own_streams.wide);
  own_streams.cerr.put_before(std::cerr);
  own_streams.clog.put_before(std::clog);
}

}  // namespace shoal
