// What shoal throws when the world fails. A caller's mistake is a std::logic_error (or a kind of it) instead.
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

/// A system call failed. The message holds what was tried, errno's name and text, and what to do.
class SystemError : public Error {
 public:
  /// `error_number` is an errno, `remedy` what the user can do.
  SystemError(const std::string& what_was_tried, int error_number, const std::string& remedy = "");
  int error_number() const noexcept { return error_number_; }  ///< the errno

 private:
  int error_number_;
};

/// Shared memory would exceed a limit; nothing was taken.
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

/// A deadline passed. Nothing was changed.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// The queue was closed: nothing can be put any more, or all that had been put is drained.
class QueueClosed : public Error {
 public:
  using Error::Error;
};

/// No living process of the session has published anything under the key.
class NotPublished : public Error {
 public:
  using Error::Error;
};

/// The processes that a wait depended on are dead.
class PeerDied : public Error {
 public:
  using Error::Error;
};

/// What an exception says, as one line for people: the exception's text after the first describer
/// that recognises it. Layers above register one for types whose what() holds more than that.
std::string describe(const std::exception& error);
/// Writes into `text` what people should read of `error`, and returns true, where it recognises the type.
using ExceptionDescriber = bool (*)(const std::exception& error, std::string& text);
/// One more that describe() asks, after those before it.
void register_exception_describer(ExceptionDescriber describer);

/// Demangled name of the exception's dynamic type.
std::string type_name(const std::exception& error);

}  // namespace shoal
