#include "bench/beton/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
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
  ::signal(SIGPIPE, SIG_IGN);  // a peer that ended is no reason to: ask() says so
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &pipe);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (::posix_spawnp(&pid_, words[0], &actions, &attributes, words.data(), environ) != 0) pid_ = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
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
  if (std::fputs((question.dump() + "\n").c_str(), to_) < 0 || std::fflush(to_) != 0) {
    fmt::print("# peer {} has ended\n", pid_);
    return nullptr;
  }
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
