// The exceptions for failures of the world. A caller's mistake is a std::logic_error instead.
#pragma once

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>

namespace shoal {

/// Base of all failures that are not the caller's mistake.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A system call failed. The message says what was tried, errno's name and text, and what to do.
class SystemError : public Error {
 public:
  /// `error_number` is an errno, `remedy` what the user can do.
  SystemError(const std::string& what_was_tried, int error_number, const std::string& remedy = "");
  int error_number() const noexcept { return error_number_; }  ///< the errno

 private:
  int error_number_;
};

/// An allocation would exceed a limit of shared memory. It took nothing.
class OutOfSharedMemory : public Error {
 public:
  /// All in bytes; `limit` says which limit that is.
  OutOfSharedMemory(std::size_t asked, std::size_t in_use, std::size_t allowed, const std::string& limit);
  std::size_t asked() const noexcept { return asked_; }      ///< bytes that were asked for
  std::size_t in_use() const noexcept { return in_use_; }    ///< bytes that the session had at that time
  std::size_t allowed() const noexcept { return allowed_; }  ///< bytes that the limit allows

 private:
  std::size_t asked_, in_use_, allowed_;
};

/// Received bytes are not a value of the expected type.
class DecodeError : public Error {
 public:
  using Error::Error;
};

/// A deadline passed. The call changed nothing. (A collective that times out breaks its group.)
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// The queue is closed: put() adds nothing any more, or get() has drained it.
class QueueClosed : public Error {
 public:
  using Error::Error;
};

/// No living process of the session has published anything under the key.
class NotPublished : public Error {
 public:
  using Error::Error;
};

/// The processes that a wait depends on are dead.
class PeerDied : public Error {
 public:
  using Error::Error;
};

/// The exception's text as one line for people: what the first describer that recognises it writes, otherwise what().
/// Layers above register a describer for exceptions whose what() says too much.
std::string describe(const std::exception& error);
/// If it recognises the type, writes into `text` what people should read of `error` and returns true.
using ExceptionDescriber = bool (*)(const std::exception& error, std::string& text);
/// One more that describe() asks, after those before it.
void register_exception_describer(ExceptionDescriber describer);

/// The demangled name of the exception's dynamic type.
std::string type_name(const std::exception& error);

}  // namespace shoal
