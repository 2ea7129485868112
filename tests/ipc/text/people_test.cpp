// What is written for people: quantities, and texts that have to fit.
#include <shoal/internal/ipc/text/quantity_text.h>
#include <shoal/internal/ipc/text/utf8_fit.h>

#include "tests/support/catch.h"

using namespace shoal;

TEST_CASE("quantities: short ones for tables") {
  CHECK(short_bytes(0) == "0");
  CHECK(short_bytes(1023) == "1023");
  CHECK(short_bytes(1536) == "1.5K");
  CHECK(short_bytes(300 << 10) == "300K");
  CHECK(short_bytes((1ull << 20) - 1) == "1.0M");
  CHECK(short_bytes(5ull << 40) == "5.0T");
  CHECK(short_number(2.25) == "2.2");
  CHECK(short_number(17) == "17");
  CHECK(short_number(12'345) == "12k");
  CHECK(short_number(2'500'000) == "2.5M");
}

TEST_CASE("quantities: long ones for sentences") {
  CHECK(long_bytes(0) == "0 bytes");
  CHECK(long_bytes(1023) == "1023 bytes");
  CHECK(long_bytes(1536) == "1.50 KiB");
  CHECK(long_bytes((1ull << 20) - 1) == "1.00 MiB");
  CHECK(long_bytes(512ull << 30) == "512.00 GiB");
}

TEST_CASE("texts: as many whole characters as go into so many bytes") {
  CHECK(fit_bytes("abc", 3) == "abc");
  CHECK(fit_bytes("abc", 2) == "ab");
  CHECK(fit_bytes("a\u00e4\u00f6", 4) == "a\u00e4");
  CHECK(fit_bytes("a\u00e4\u00f6", 5) == "a\u00e4\u00f6");
  CHECK(fit_bytes("\U0001f41f", 3).empty());
  CHECK(fit_bytes("", 0).empty());
}

TEST_CASE("texts: as many characters as go into so many columns, harmless ones") {
  CHECK(column_count("a\u00e4\U0001f41f") == 3);
  CHECK(fit_columns("abc", 2) == "ab");
  CHECK(fit_columns("\u00e4\u00f6\u00fc", 2) == "\u00e4\u00f6");
  CHECK(fit_columns("a\x1b[2J", 9) == "a?[2J");
  CHECK(fit_columns("a\xe4z", 9) == "a?z");
  CHECK(fit_columns("\xc2\x9bz", 9) == "??z");  // a control of C1
}
