// What a struct of settings says about its members: texts, units, limits. And types that have a text of their own.
#pragma once

#include <array>
#include <limits>
#include <string_view>

namespace shoal {

/// What numbers an option may have, also in elements of lists.
struct OptionLimits {
  std::string_view unit = {};                               ///< "bytes": 64MiB and 1.5GB can be written, too
  double least = -std::numeric_limits<double>::infinity();  ///< the least number, itself allowed
  double most = std::numeric_limits<double>::infinity();    ///< the largest number, itself allowed
  double above = -std::numeric_limits<double>::infinity();  ///< all are larger than this
};

/// What `--help` and a printed file say about a member, and what numbers it may have. A table in the struct, which stays
/// a plain aggregate; a name that is no member's does not compile.
///
///     struct Training {
///       double lr = 0.05;
///       std::size_t cache = 0;
///
///       static constexpr shoal::OptionText kTexts[] = {
///           {"lr", "learning rate at the start", {.above = 0}},
///           {"cache", "memory for samples; 0: none", {.unit = "bytes"}},   // then 64MiB can be written
///       };
///     };
struct OptionText {
  std::string_view name;       ///< of the member
  std::string_view text = {};  ///< what it is, in a few words
  OptionLimits limits = {};    ///< unit and limits of numbers
};

/// The table of a struct that is not yours; specialize it: `template <> inline constexpr std::array<...>
/// shoal::kTextsOf<Theirs> = ...`.
template <class T>
inline constexpr std::array<OptionText, 0> kTextsOf = {};

/// How a type of your own, which is no plain struct, is written in files and on command lines. Specialize it:
///
///     template <> struct shoal::OptionFormat<Colour> {
///       static constexpr std::string_view kType = "#rrggbb";                 // in --help
///       static Colour from_text(std::string_view text);                      // throws: what() says what it must be
///       static std::optional<std::string> to_text(const Colour& colour);     // nothing: it is left out of files
///     };
template <class T>
struct OptionFormat;

/// Members of these types are no options: they stay as the program sets them. Functions are such types; specialize it
/// for others.
template <class T>
inline constexpr bool kNoOption = false;

}  // namespace shoal
