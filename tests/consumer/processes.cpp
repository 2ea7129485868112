// runtime without libtorch: two processes return a value.
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>

#include <iostream>
#include <vector>

int square(int rank) { return rank * rank; }

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::vector<int> squares = shoal::spawn({.nprocs = 3}, square);
  for (const int value : squares) std::cout << value << "\n";
  return squares == std::vector<int>{0, 1, 4} ? 0 : 1;
}
