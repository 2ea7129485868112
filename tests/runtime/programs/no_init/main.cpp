// A program that forgot shoal::init: its first start says so.
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>

#include <cstdio>
#include <stdexcept>

int main() {
  for (auto method : {shoal::StartMethod::spawn, shoal::StartMethod::forkserver, shoal::StartMethod::fork}) {
    try {
      shoal::spawn({.nprocs = 2, .start_method = method}, [](int) {});
      return 1;
    } catch (const std::logic_error& error) {
      std::puts(error.what());
    }
  }
}
