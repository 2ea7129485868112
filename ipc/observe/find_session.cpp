// Which sessions there are: by a process, by a name, all.
#include <dirent.h>
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/names/rendezvous.h>
#include <shoal/internal/ipc/observe/session_file.h>
#include <shoal/ipc/error.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

namespace shoal {
namespace {

/// 0 if it is not one.
pid_t as_pid(const std::string& text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  return error == std::errc() && end == text.data() + text.size() && pid > 0 ? pid : 0;
}

/// The process that listens under the name, 0 for none. Asked of its socket: looking at the lock would take it from a
/// listener that is this process.
pid_t listener_of(const std::string& name) {
  for (const std::string& path : RendezvousFolder::candidates()) {
    const RendezvousFolder folder = RendezvousFolder::open(path);
    if (!folder) continue;
    Fd socket = lift(Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    const sockaddr_un at = folder.address(name);
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) continue;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) return peer.pid;
  }
  return 0;
}

std::vector<pid_t> own_processes() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir("/proc"), &::closedir);
  if (!listing) throw SystemError("looking into /proc", errno);
  while (const dirent* entry = ::readdir(listing.get()))
    if (const pid_t pid = as_pid(entry->d_name)) pids.push_back(pid);
  return pids;
}

}  // namespace

FoundSession find_session(const std::string& name_or_pid) {
  if (const pid_t pid = as_pid(name_or_pid)) {
    auto file = SessionFile::of_process(pid);
    if (!file) throw Error(fmt::format("process {} is part of no session", pid));
    return {std::move(*file), pid};
  }
  RendezvousFolder::check_name(name_or_pid);
  const pid_t pid = listener_of(name_or_pid);
  if (pid == 0)
    throw Error(fmt::format(
        "no session listens under the name '{}' (Session::listen); give the pid of one of its processes", name_or_pid));
  auto file = SessionFile::of_process(pid);
  if (!file) throw Error(fmt::format("process {}, which listens as '{}', is part of no session", pid, name_or_pid));
  return {std::move(*file), pid};
}

std::vector<FoundSession> find_sessions() {
  std::vector<FoundSession> found;
  for (const pid_t pid : own_processes()) {
    try {
      auto file = SessionFile::of_process(pid);
      if (!file) continue;
      const bool known = std::ranges::any_of(found, [&](auto& one) { return one.file.is_same(*file); });
      if (!known) found.push_back({std::move(*file), pid});
    } catch (const Error&) {
      // Another's, gone by now, or of another version: not to be shown.
    }
  }
  std::ranges::sort(found, [](const FoundSession& a, const FoundSession& b) {
    return a.file.plan().root_pid < b.file.plan().root_pid;
  });
  return found;
}

}  // namespace shoal
