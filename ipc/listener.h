// A name under which processes outside the tree can attach to this session.
#pragma once

#include <memory>
#include <string>

namespace shoal {

/// Made by Session::listen(). Answers attach() calls of other processes, whatever this process is busy with. Destroying
/// it frees the name. Move-only; owned by one thread at a time.
///
/// A thread of shoal's own answers. It takes no signal, allocates nothing and takes no lock, so a fork of this process
/// is safe beside it. A forked child does not listen: its copy of this object does nothing. If this process is killed,
/// the processes that attached stay in the session, and the next process that asks for the name gets it.
class Listener {
 public:
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  const std::string& name() const;  ///< as given to listen()
  /// The socket's path, for people.
  std::string path() const;

 private:
  friend class Session;
  explicit Listener(const std::string& name);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
