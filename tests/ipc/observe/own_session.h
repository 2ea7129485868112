// This session, as from outside.
#pragma once

#include <shoal/internal/ipc/observe/session_file.h>
#include <shoal/ipc/session.h>
#include <unistd.h>

#include <utility>

#include "tests/support/catch.h"

namespace shoal::test {

inline SessionFile own_session() {
  Session::current().self();
  auto file = SessionFile::of_process(::getpid());
  REQUIRE(file);
  return std::move(*file);
}

}  // namespace shoal::test
