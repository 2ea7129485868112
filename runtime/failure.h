// The exceptions by which a child's failure reaches its parent.
#pragma once

#include <shoal/ipc/error.h>
#include <shoal/runtime/exit_status.h>
#include <sys/types.h>

#include <optional>
#include <string>

namespace shoal {

/// Which process an error is about.
struct ProcessIdentity {
  std::string name;
  int rank = -1;  // -1: none
  pid_t pid = 0;
};

/// A started process did not do what it was started for. The message names it and says why.
class ProcessFailed : public Error {
 public:
  const std::string& name() const noexcept { return who_.name; }
  int rank() const noexcept { return who_.rank; }  ///< -1: it had none
  pid_t pid() const noexcept { return who_.pid; }

 protected:
  ProcessFailed(ProcessIdentity who, const std::string& what_happened);

 private:
  ProcessIdentity who_;
};

/// Its function threw.
class ProcessRaised : public ProcessFailed {
 public:
  ProcessRaised(ProcessIdentity who, std::string exception_type, std::string exception_message);
  const std::string& exception_type() const noexcept { return type_; }
  const std::string& exception_message() const noexcept { return message_; }

 private:
  std::string type_, message_;
};

/// It was ended by a signal, or exited otherwise than by returning from its function.
class ProcessExited : public ProcessFailed {
 public:
  ProcessExited(ProcessIdentity who, ExitStatus status);
  /// Nothing where a signal ended it.
  std::optional<int> exit_code() const noexcept;
  int signal() const noexcept { return status_.signal; }  ///< 0: none
  std::string signal_name() const { return status_.signal ? shoal::signal_name(status_.signal) : ""; }

 private:
  ExitStatus status_;
};

}  // namespace shoal
