#include <shoal/internal/runtime/report/named_calls.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/crash/process_images.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace shoal {
namespace {

/// Of no interest to those who ask where their program is.
bool is_machinery(const StackFrame& frame) {
  if (frame.function.empty()) return true;
  static constexpr std::string_view kFiles[] = {"libc.so",  "libc-",   "ld-linux", "libstdc++", "libgcc_s",
                                                "libtorch", "libc10.", "libgomp",  "libpthread"};
  static constexpr std::string_view kFunctions[] = {
      "shoal::", "std::", "void shoal::", "void std::", "c10::", "c10d::", "at::", "torch::", "__", "_start"};
  const std::string_view file = std::string_view(frame.image).substr(frame.image.rfind('/') + 1);
  const auto starts = [](std::string_view text) {
    return [text](std::string_view start) { return text.starts_with(start); };
  };
  return std::ranges::any_of(kFiles, starts(file)) || std::ranges::any_of(kFunctions, starts(frame.function));
}

std::string place_text(const StackFrame& frame) {
  if (frame.function.empty()) return short_text(frame);
  return frame.line == 0 ? fmt::format("`{}`", frame.function)
                         : fmt::format("`{}` at {}:{}", frame.function, frame.file, frame.line);
}

}  // namespace

NamedCalls name_calls(const std::vector<ProcessStacks>& stacks) {
  std::vector<CodePlace> places;
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> known;    // image and offset -> of `places`
  std::map<std::pair<pid_t, std::uint64_t>, std::size_t> place_of_call;  // likewise
  for (const ProcessStacks& process : stacks) {
    std::set<std::uint64_t> addresses;
    for (const ThreadStack& thread : process.threads) addresses.insert(thread.frames.begin(), thread.frames.end());
    if (addresses.empty()) continue;
    ProcessImages images(process.pid);
    for (const std::uint64_t address : addresses) {
      CodePlace place = images.place_of(address);
      const auto [entry, is_new] = known.try_emplace({place.image, place.offset}, places.size());
      if (is_new) places.push_back(std::move(place));
      place_of_call[{process.pid, address}] = entry->second;
    }
  }
  const std::vector<StackFrame> frames = symbolize(places);
  NamedCalls calls;
  for (const auto& [call, place] : place_of_call) calls[call] = frames[place];
  return calls;
}

std::string short_text(const StackFrame& frame) {
  const std::string file = frame.image.substr(frame.image.rfind('/') + 1);
  if (frame.function.empty()) return fmt::format("{}+0x{:x}", file.empty() ? "?" : file, frame.offset);
  return frame.line != 0 ? fmt::format("{} at {}:{}", frame.function, frame.file, frame.line)
                         : fmt::format("{} in {}", frame.function, file);
}

std::string place_in_program(pid_t process, const ThreadStack& thread, const NamedCalls& calls) {
  if (thread.answer != ThreadStack::Answer::kGiven)
    return fmt::format("nobody knows where: {}", reason_of(thread.answer));
  const StackFrame* innermost = nullptr;
  for (const std::uint64_t address : thread.frames) {
    const auto call = calls.find({process, address});
    if (call == calls.end()) continue;
    if (!innermost) innermost = &call->second;
    if (!is_machinery(call->second)) return place_text(call->second);
  }
  return innermost ? place_text(*innermost) : "code without names";
}

}  // namespace shoal
