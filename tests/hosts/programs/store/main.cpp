// A store that a launcher keeps for its ranks, as torchrun does: in a process of its own, until it is killed. Arguments:
// its port, and a file that gets a line when it is open, and one when a rank has written to it.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace {

void say(const char* file, const char* line) {
  if (std::FILE* opened = std::fopen(file, "a")) {
    std::fputs(line, opened);
    std::fclose(opened);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  c10d::TCPStoreOptions options;
  options.port = std::uint16_t(std::atoi(argv[1]));
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  // A rank counts its host, and then says what it is.
  const std::int64_t own = store->getNumKeys();
  say(argv[2], "open\n");
  while (store->getNumKeys() < own + 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  say(argv[2], "written\n");
  ::pause();
}
