#include "bench/beton/peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace shoal::bench {

Peer::Peer(const std::vector<std::string>& command) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return;
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return;
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (::posix_spawnp(&pid_, words[0], &actions, nullptr, words.data(), environ) != 0) pid_ = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = ::fdopen(in[1], "w");
  from_ = ::fdopen(out[0], "r");
}

Peer::~Peer() {
  if (to_ != nullptr) std::fclose(to_);
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

nlohmann::json Peer::ask(const nlohmann::json& question) {
  if (pid_ <= 0 || to_ == nullptr || from_ == nullptr) return nullptr;
  if (std::fputs((question.dump() + "\n").c_str(), to_) < 0 || std::fflush(to_) != 0) return nullptr;
  char* line = nullptr;
  std::size_t size = 0;
  nlohmann::json answer;
  // What a library prints on its own is no answer.
  while (::getline(&line, &size, from_) > 0) {
    answer = nlohmann::json::parse(line, nullptr, false);
    if (answer.is_object()) break;
    answer = nullptr;
  }
  std::free(line);
  return answer;
}

}  // namespace shoal::bench
