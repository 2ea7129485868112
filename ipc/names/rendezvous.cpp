#include <shoal/internal/ipc/names/rendezvous.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr int kBacklog = 64;

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool try_lock(int file) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  if (::fcntl(file, F_SETLK, &lock) == 0) return true;
  if (errno != EACCES && errno != EAGAIN) throw SystemError("locking a session's name", errno);
  return false;
}

int lock_holder(int file) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  return ::fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

}  // namespace

void RendezvousFolder::check_name(const std::string& name) {
  if (name.empty() || name.size() > kLongestName || name.front() == '.' || !std::ranges::all_of(name, is_name_letter))
    throw std::invalid_argument(
        fmt::format("'{}' is no name for a session: give 1 to {} letters, digits, '.', '_' or '-', and no dot first",
                    name, kLongestName));
}

std::vector<std::string> RendezvousFolder::candidates() {
  std::vector<std::string> paths;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && runtime[0] == '/')
    paths.push_back(std::string(runtime) + "/shoal");
  paths.push_back(fmt::format("/tmp/shoal-{}", ::geteuid()));
  return paths;
}

RendezvousFolder RendezvousFolder::open(const std::string& path) {
  Fd folder = lift(Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!folder && (errno == ENOENT || errno == EACCES)) return {path, Fd()};
  if (!folder) throw SystemError(fmt::format("opening {}", path), errno, "it has to be a folder of yours");
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) throw SystemError(fmt::format("looking at {}", path), errno);
  // Anyone may make a folder in /tmp: what another user put there is not trusted.
  if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw Error(
        fmt::format("{} belongs to user {} with mode {:o}: sessions are met in a folder of user {}'s alone "
                    "(mode 700); remove it, or set XDG_RUNTIME_DIR",
                    path, status.st_uid, status.st_mode & 07777, ::geteuid()));
  return {path, std::move(folder)};
}

RendezvousFolder RendezvousFolder::open_or_make() {
  int error = 0;
  for (const std::string& path : candidates()) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      error = errno;
      continue;
    }
    if (RendezvousFolder folder = open(path)) return folder;
    error = errno;
  }
  throw SystemError(fmt::format("making {}", fmt::join(candidates(), " or ")), error);
}

sockaddr_un RendezvousFolder::address(const std::string& name) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}.sock", folder_.descriptor_if_open(), name);
  path.copy(address.sun_path, sizeof address.sun_path - 1);  // under 100 characters, as names are checked
  return address;
}

Fd RendezvousFolder::claim(const std::string& name) const {
  const std::string file = name + ".lock";
  for (;;) {
    Fd lock =
        lift(Fd(::openat(folder_.descriptor_if_open(), file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)));
    if (!lock) throw SystemError(fmt::format("opening {}/{}", path_, file), errno);
    if (!try_lock(lock.get()))
      throw Error(fmt::format("process {} listens under the name '{}' already", lock_holder(lock.get()), name));
    // The last holder removes the file while it has the lock: one that is not there any more claims nothing.
    struct stat mine{}, there{};
    if (::fstat(lock.get(), &mine) == 0 &&
        ::fstatat(folder_.descriptor_if_open(), file.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_ino == there.st_ino)
      return lock;
  }
}

Fd RendezvousFolder::listen(const std::string& name) const {
  ::unlinkat(folder_.descriptor_if_open(), (name + ".sock").c_str(), 0);
  Fd socket = lift(Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  if (!socket) throw SystemError("making a socket", errno);
  const sockaddr_un at = address(name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(socket.get(), kBacklog) != 0)
    throw SystemError(fmt::format("listening at {}/{}.sock", path_, name), errno);
  return socket;
}

void RendezvousFolder::remove(const std::string& name) const noexcept {
  ::unlinkat(folder_.descriptor_if_open(), (name + ".sock").c_str(), 0);
  ::unlinkat(folder_.descriptor_if_open(), (name + ".lock").c_str(), 0);
}

}  // namespace shoal
