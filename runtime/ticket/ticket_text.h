// A ticket as text: its numbers, with commas between them.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace shoal {

/// A ticket names its numbers once, in `for_each_number(self, visit)`, which calls visit with all or some of them at a
/// time; a part of it that is a ticket does so itself. So what is written is what is read.
template <class Ticket>
std::string numbers_of(const Ticket& ticket) {
  std::string text;
  auto write = [&text](const std::integral auto& number) {
    if (!text.empty()) text += ',';
    text += std::to_string(+number);
  };
  Ticket::for_each_number(ticket, [&](const auto&... numbers) { (write(numbers), ...); });
  return text;
}

/// False if the text is not just those.
template <class Ticket>
bool read_numbers(std::string_view text, Ticket& ticket) {
  bool good = true, first = true;
  auto read = [&](std::integral auto& number) {
    if (!std::exchange(first, false)) {
      good = good && text.starts_with(',');
      if (good) text.remove_prefix(1);
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    good = good && error == std::errc();
    if (good) text.remove_prefix(std::size_t(end - text.data()));
  };
  Ticket::for_each_number(ticket, [&](auto&... numbers) { (read(numbers), ...); });
  return good && text.empty();
}

}  // namespace shoal
