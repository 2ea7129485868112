// Started with standard input, output and error closed: everything of shoal's works, prints go nowhere, and the heap,
// which a descriptor of that number would have let them write to, is whole. Says by its exit code which step has
// failed, since it can say it in no other way.
#include <fcntl.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

using shoal::StartMethod;

namespace {

void print_much() {
  for (int i = 0; i < 200; ++i) {
    std::puts("a line that is longer than the words at the start of the heap");
    std::fputs("and one to the other stream\n", stderr);
    std::cerr << "and one more" << std::endl;
    shoal::log_error("a line of the log");
  }
  std::fflush(nullptr);
}

/// 0, or what is wrong. A file that is being read below /proc or /sys is nobody's for long.
int look() {
  for (int number = 0; number < 3; ++number) {
    char target[64];
    const std::string path = "/proc/self/fd/" + std::to_string(number);
    const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
    const std::string name(target, size > 0 ? std::size_t(size) : 0);
    if (size > 0 && !name.starts_with("/proc/") && !name.starts_with("/sys/")) return 1 + number;
  }
  const shoal::SessionLayout& layout = shoal::SessionCore::current().layout();
  return layout.magic == shoal::SessionLayout::kMagic && layout.version == shoal::SessionLayout::kVersion ? 0 : 4;
}

int work(int rank, shoal::Queue<std::string> queue) {
  print_much();
  queue.put(std::to_string(rank));
  print_much();
  return look();
}

int crash(int) {
  std::fputs("about to end", stderr);
  ::abort();
}

/// 0, or the number of what has failed.
int start_all(StartMethod method) {
  shoal::Queue<std::string> queue(16);
  const auto seen = shoal::spawn({.nprocs = 2, .start_method = method}, work, queue);
  for (const int what : seen)
    if (what != 0) return what;
  if (queue.get().size() + queue.get().size() != 2) return 5;
  try {
    shoal::spawn({.nprocs = 1, .start_method = method}, crash);
    return 6;
  } catch (const shoal::Error& error) {
    if (std::string(error.what()).find("SIGABRT") == std::string::npos) return 7;
  }
  return look();
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  for (int number = 0; number < 3; ++number)
    if (::fcntl(number, F_GETFD) >= 0) return 100;  // not started as it should be
  ::setenv("SHOAL_LOG", "debug", 1);
  print_much();
  if (const int wrong = look()) return 10 + wrong;
  try {
    int step = 20;
    for (const StartMethod method : {StartMethod::spawn, StartMethod::forkserver, StartMethod::fork}) {
      if (const int wrong = start_all(method)) return step + wrong;
      step += 10;
    }
  } catch (const std::exception&) {
    return 99;
  }
  print_much();
  return look();
}
