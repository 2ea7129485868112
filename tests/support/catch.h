// Catch2, version 2 (Debian 12) or 3 (Ubuntu 24.04), as if they were one.
#pragma once

// libtorch's logging header defines a CHECK of its own. It goes first, so that Catch2's is the one that stays.
#if __has_include(<c10/util/Logging.h>)
#include <c10/util/Logging.h>
#undef CHECK
#endif

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
namespace shoal::test {
using ListenerBase = Catch::EventListenerBase;
}
#else
#include <catch2/catch.hpp>

// Version 3's names, which are the clearer ones.
inline auto ContainsSubstring(const std::string& text,
                              Catch::CaseSensitive::Choice choice = Catch::CaseSensitive::Yes) {
  return Catch::Matchers::Contains(text, choice);
}
using Catch::Approx;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
#ifdef CATCH_CONFIG_EXTERNAL_INTERFACES
namespace shoal::test {
using ListenerBase = Catch::TestEventListenerBase;
}
#endif
#endif
