// A store that a launcher keeps for its ranks, as torchrun does: in a process of its own, until it is killed. Arguments:
// its port, and a file that gets a line when a rank has written to it.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  c10d::TCPStoreOptions options;
  options.port = std::uint16_t(std::atoi(argv[1]));
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  // A rank counts its host, and then says what it is.
  const std::int64_t own = store->getNumKeys();
  while (store->getNumKeys() < own + 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (std::FILE* file = std::fopen(argv[2], "a")) {
    std::fputs("ready\n", file);
    std::fclose(file);
  }
  ::pause();
}
