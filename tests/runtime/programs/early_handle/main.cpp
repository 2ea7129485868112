// A program with a handle at namespace scope: what it starts anew would make one of its own. Refused at once, by name.
#include <shoal/ipc/lock.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

__attribute__((noinline)) shoal::Lock make_early_lock() { return shoal::Lock(); }
shoal::Lock early = make_early_lock();

bool is_refused(shoal::StartMethod method) {
  try {
    shoal::spawn({.start_method = method}, [](int) {});
  } catch (const std::logic_error& error) {
    const std::string text = error.what();
    std::printf("%s: %s\n", shoal::method_name(method), error.what());
    return text.find("make_early_lock") != std::string::npos && text.find("before shoal::init") != std::string::npos;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  if (!is_refused(shoal::StartMethod::spawn) || !is_refused(shoal::StartMethod::forkserver)) return 1;
  // A copy of this process has the same lock.
  early.lock();
  const auto held = shoal::spawn({.start_method = shoal::StartMethod::fork}, [](int) { return !early.try_lock(); });
  return held == std::vector<bool>{true} ? 0 : 2;
}
