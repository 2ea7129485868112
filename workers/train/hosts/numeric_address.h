// Host and port as the kernel takes them.
#pragma once

#include <fmt/format.h>
#include <netdb.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <sys/socket.h>

#include <memory>
#include <string>

namespace shoal {

/// An address that is written as numbers, of either family, with a port. Throws Error for any other text.
class NumericAddress {
 public:
  NumericAddress(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* all = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &all); code != 0)
      throw Error(fmt::format("the address '{}': {}", host, ::gai_strerror(code)));
    found_.reset(all);
  }
  const addrinfo& info() const { return *found_; }
  /// A socket of its family that never waits. None, with errno set, if the process can open no further descriptor.
  Fd socket() const { return lift(Fd(::socket(found_->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))); }

 private:
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found_{nullptr, ::freeaddrinfo};
};

}  // namespace shoal
