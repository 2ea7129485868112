// Starts processes by the methods that run a program anew or fork it off another process, in whatever way this very
// program was linked: they have to find its functions, and those of libraries, where they are.
#include <dlfcn.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "library.h"

namespace fs = std::filesystem;
using shoal::StartMethod;

namespace {

/// Has to be there before main() in every process.
const std::map<std::string, std::vector<int>> made_before_main = {{"answer", {42}}, {"none", {}}};

int own_function(int rank, const std::string& text) {
  return int(text.size()) + rank + made_before_main.at("answer").front();
}

struct Failed {};

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "failed: %s\n", what);
  throw Failed();
}

using OpenedFunction = int (*)(int, int);

OpenedFunction open_library(const fs::path& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "%s\n", ::dlerror());
  check(library != nullptr, "the library could be opened");
  return reinterpret_cast<OpenedFunction>(::dlsym(library, "opened_function"));
}

void start_all(StartMethod method, const fs::path& library) {
  using Numbers = std::vector<int>;
  check(shoal::spawn({.nprocs = 2, .start_method = method}, own_function, std::string("four")) == Numbers{46, 47},
        "a function of the program");
  check(shoal::spawn({.nprocs = 2, .start_method = method}, [](int rank) { return -rank; }) == Numbers{0, -1},
        "a lambda of the program");
  check(shoal::spawn({.nprocs = 2, .start_method = method}, library_function, 5) == Numbers{15, 16},
        "a function of a linked library");
  check(shoal::spawn({.nprocs = 2, .start_method = method}, open_library(library), 5) == Numbers{15, 25},
        "a function of a library that was opened");
}

void start_by_both(const fs::path& library) {
  start_all(StartMethod::spawn, library);
  start_all(StartMethod::forkserver, library);
}

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "shoal-start-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "a folder could be made");
  return name;
}

/// As a package manager or a linker does it: another file under the same name, while the old one is in use.
void replace(const fs::path& file, const fs::path& with) {
  const fs::path aside = file.string() + ".new";
  fs::copy_file(with, aside);
  fs::rename(aside, file);
}

void run_as_copy(const fs::path& library) {
  const fs::path copy = new_folder() / "program";
  fs::copy_file("/proc/self/exe", copy);
  ::execl(copy.c_str(), copy.c_str(), "replaced", library.c_str(), nullptr);
  check(false, "the copy could be run");
}

void start_replaced(const fs::path& self, const fs::path& library) {
  replace(self, "/bin/false");
  start_by_both(library);
  fs::remove(self);
  start_by_both(library);
  fs::remove_all(self.parent_path());
}

/// A library whose file is another one by the time a started process opens it.
void start_with_other_library(StartMethod method, const fs::path& library, const fs::path& other) {
  const fs::path folder = new_folder(), copy = folder / "library.so";
  fs::copy_file(library, copy);
  const OpenedFunction function = open_library(copy);
  replace(copy, other);
  std::string text;
  try {
    shoal::spawn({.nprocs = 1, .start_method = method}, function, 5);
  } catch (const std::exception& error) {
    text = error.what();
  }
  fs::remove_all(folder);
  std::printf("%s\n", text.c_str());
  check(text.find("no image here has the build id") != std::string::npos, "the other build is refused");
  check(text.find("another build than the one that started it") != std::string::npos, "the reason is said");
  check(text.find("library.so") != std::string::npos, "the library is named");
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::string what = argc > 2 ? argv[1] : "";
  try {
    if (what == "start")
      start_by_both(argv[2]);
    else if (what == "replace")
      run_as_copy(argv[2]);
    else if (what == "replaced")
      start_replaced(argv[0], argv[2]);
    else if (what == "other" && argc > 3)
      for (const StartMethod method : {StartMethod::spawn, StartMethod::forkserver})
        start_with_other_library(method, argv[2], argv[3]);
    else
      return 2;
  } catch (const Failed&) {
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
  return 0;
}
