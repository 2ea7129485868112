// ipc alone: no libtorch, no processes.
#include <shoal/ipc/queue.h>

#include <iostream>
#include <map>
#include <string>

int main() {
  shoal::Queue<std::map<std::string, int>> queue(4);
  queue.put({{"one", 1}, {"two", 2}});
  const auto value = queue.get();
  std::cout << "got " << value.size() << " entries, two is " << value.at("two") << "\n";
  return value.at("two") == 2 ? 0 : 1;
}
