// A name under which processes outside the tree can attach to this session.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace shoal {

/// Made by Session::listen(). Answers attach() of other processes, whatever this one is busy with, until it is
/// destroyed: then the name is free. Move-only; owned by one thread at a time.
///
/// A thread of shoal's own answers. It takes no signal, allocates nothing and takes no lock, so a fork of this process
/// loses nothing with it; a forked child does not listen, and its copy of this object does nothing. When this process
/// is killed, those that attached stay in the session, and the name is the next one's that asks for it.
class Listener {
 public:
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  const std::string& name() const;  ///< as given to listen()
  /// The socket's path, for people.
  std::string path() const;

  /// Closes what a forked child inherited of all listeners; in that child.
  static void after_fork() noexcept;
  /// Whether that thread of this process answers for a listener, so that no fork has to be refused because of it.
  static bool is_thread_of_one(pid_t thread) noexcept;

 private:
  friend class Session;
  explicit Listener(const std::string& name);
  struct State;
  /// The listeners of this process, under the mutex of listener.cpp.
  static std::vector<State*>& all();
  std::unique_ptr<State> state_;
};

}  // namespace shoal
