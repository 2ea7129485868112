// Whether a test program is one under a sanitizer, and how many rounds a campaign has there.
#pragma once

namespace shoal::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// A third of `count` under a sanitizer, where each round takes three to ten times as long: the rounds that find rare orders
/// of events are those without one.
constexpr int rounds(int count) { return kSanitized ? (count + 2) / 3 : count; }

}  // namespace shoal::test
