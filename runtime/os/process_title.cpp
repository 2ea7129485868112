#include <shoal/internal/runtime/os/process_title.h>

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

namespace shoal {
namespace {

std::string& stored_program_name() {
  static std::string name = "shoal-program";
  return name;
}

char* place = nullptr;
std::size_t place_size = 0;

}  // namespace

void note_program_name(const char* name) { stored_program_name() = name; }
const std::string& program_name() { return stored_program_name(); }

void note_title_place(char* argument) {
  place = argument;
  place_size = std::strlen(argument);
}

void set_process_title(const std::string& name, int rank) {
  constexpr std::size_t kMost = 15, kLeastOfProgram = 4;
  const std::string program = program_name().substr(program_name().rfind('/') + 1);
  const std::string part = (rank < 0 ? name : std::to_string(rank)).substr(0, kMost - kLeastOfProgram - 1);
  ::prctl(PR_SET_NAME, (program.substr(0, kMost - part.size() - 1) + "/" + part).c_str());
  if (!place) return;
  const std::string title = rank < 0 ? name : name + " " + std::to_string(rank);
  std::memset(place, 0, place_size);
  title.copy(place, place_size);
}

}  // namespace shoal
