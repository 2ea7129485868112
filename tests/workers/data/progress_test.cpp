#include <shoal/workers/data/progress.h>

#include <string>

#include "tests/support/catch.h"
#include "tests/support/sink.h"

using namespace std::chrono_literals;
using shoal::progress_line;
using shoal::ProgressBar;
using shoal::test::Sink;

TEST_CASE("progress_line: shows share, bar, rate and what is left") {
  const std::string line = progress_line({"epoch 1/3", 15000, 60000, 1.5, "samples", "loss 0.41"}, 100);
  CHECK(line == "epoch 1/3  [=======.......................]  25%  10,000 samples/s  0:05 left  loss 0.41");
}

TEST_CASE("progress_line: a full bar shows the time it took") {
  CHECK(progress_line({"", 10, 10, 65, "files", ""}, 60) == "[==============================] 100%  0 files/s  1:05");
}

TEST_CASE("progress_line: never wider than asked; first the bar shrinks, then it goes") {
  const shoal::ProgressState state{"a rather long label", 1, 2, 1, "samples", "and a long note behind it all"};
  for (std::size_t width = 0; width < 140; ++width) CHECK(progress_line(state, width).size() <= width);
  CHECK_THAT(progress_line(state, 100), ContainsSubstring("=") && EndsWith("behind it all"));
  CHECK_THAT(progress_line(state, 75), !ContainsSubstring("["));
}

TEST_CASE("progress_line: characters count, and are not cut") {
  const shoal::ProgressState accents{"\u00e9poque", 1, 0, 1, "im\u00e5ges", "termin\u00e9"};
  CHECK(progress_line(accents, 8) == "\u00e9poque  ");
  CHECK(progress_line(accents, 1) == "\u00e9");
  CHECK(progress_line({"\u00e9poque", 15, 60, 1, "files", ""}, 40).size() ==
        progress_line({"epoque", 15, 60, 1, "files", ""}, 40).size() + 1);
}

TEST_CASE("progress_line: an unknown total has no share and no bar") {
  CHECK(progress_line({"reading", 5000, 0, 2, "bytes", ""}, 80) == "reading   2,500 bytes/s  0:02");
}

TEST_CASE("progress_line: bytes in MiB a second, with tenths") {
  const shoal::ProgressState state{"reading", 157286400, 314572800, 0.5, "MiB", "", 1 << 20};
  CHECK(progress_line(state, 100) == "reading  [===============...............]  50%  300.0 MiB/s  0:01 left");
  CHECK_THAT(progress_line({"", 52429, 0, 1, "MiB", "", 1 << 20}, 80), ContainsSubstring(" 0.1 MiB/s"));
}

TEST_CASE("with_thousands: groups digits by three") {
  CHECK(shoal::with_thousands(0) == "0");
  CHECK(shoal::with_thousands(999) == "999");
  CHECK(shoal::with_thousands(1000) == "1,000");
  CHECK(shoal::with_thousands(-1234567) == "-1,234,567");
  CHECK(shoal::with_thousands(-123) == "-123");
}

TEST_CASE("ProgressBar: on a terminal every drawing replaces the one before, and finish ends the line once") {
  const Sink sink(true);
  ProgressBar bar({.total = 100, .label = "epoch", .fd = sink.fd(), .redraw_every = 0ms});
  CHECK(bar.on_terminal());
  bar.update(10);
  const std::string first = sink.text();
  CHECK_THAT(first, StartsWith("\repoch") && ContainsSubstring(" 10%") && EndsWith("\x1b[K"));
  CHECK(first.find('\n') == std::string::npos);
  CHECK(first.size() < 80 + 4);  // one line of the terminal's width
  bar.update(100);
  bar.finish("done");
  bar.finish("again");
  bar.update(100);
  const std::string rest = sink.text();
  CHECK_THAT(rest, ContainsSubstring("100%") && EndsWith("\x1b[K\r\n") &&
                       !ContainsSubstring("again"));  // the terminal makes \n a \r\n
}

TEST_CASE("ProgressBar: one that is left by an exception ends its line") {
  const Sink sink(true);
  try {
    ProgressBar bar({.total = 10, .fd = sink.fd()});
    bar.update(1);
    throw std::runtime_error("training failed");
  } catch (const std::runtime_error&) {
  }
  CHECK_THAT(sink.text(), EndsWith("\r\n"));
}

TEST_CASE("ProgressBar: where there is no terminal it writes whole plain lines") {
  const Sink sink(false);
  {
    ProgressBar bar({.total = 4, .label = "reading", .unit = "files", .fd = sink.fd(), .new_line_every = 0ms});
    CHECK_FALSE(bar.on_terminal());
    bar.update(1);
    bar.update(3, "almost");
    bar.update(4);
    bar.finish("last");
  }
  const std::string text = sink.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK_THAT(text, ContainsSubstring(" 25%") && ContainsSubstring("last") && !ContainsSubstring("\r") &&
                       !ContainsSubstring("\x1b"));
}

TEST_CASE("ProgressBar: without a terminal a quick job is one line") {
  const Sink sink(false);
  ProgressBar bar({.total = 1000, .fd = sink.fd()});
  for (int i = 0; i <= 1000; ++i) bar.update(i);
  bar.finish();
  const std::string text = sink.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}
