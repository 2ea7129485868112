// What is said over the socket between a session that listens and a process that wants to attach.
#pragma once

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/fd.h>

#include <cstdint>

namespace shoal {

/// One message each way over a SOCK_SEQPACKET socket. These two never change their layout: they are how two versions of
/// shoal find out that they are two.
struct AttachRequest {
  static constexpr std::uint64_t kMagic = 0x686361746c616f68;  // "hoaltach"

  std::uint64_t magic = kMagic;
  std::uint32_t heap_version = 0;  // SessionLayout::kVersion of the attacher
  std::uint32_t reserved = 0;
};

static_assert(sizeof(AttachRequest) == 16);

/// With kWelcome come two descriptors: the session's memory and its liveness file. kNoMemory: who listens has closed
/// its own.
struct AttachReply {
  enum Outcome : std::uint32_t { kWelcome = 1, kOtherUser = 2, kOtherVersion = 3, kNoRequest = 4, kNoMemory = 5 };

  std::uint64_t magic = AttachRequest::kMagic;
  std::uint32_t heap_version = 0;  // of the session
  std::uint32_t outcome = 0;
  std::uint32_t user = 0;  // whose session it is
  std::int32_t pid = 0;    // of the listening process
};

static_assert(sizeof(AttachReply) == 24);

/// Answers one connection; by kNoMemory if there are no descriptors to send. Allocates nothing, takes no lock,
/// throws nothing: it runs in a thread that a fork of the process may lose at any point.
void answer_attach(int connection, SessionCore::Descriptors session) noexcept;

struct AttachAnswer {
  AttachReply reply;
  Fd memory, liveness;  // of the session, with kWelcome
};

/// Asks over a connected socket. Throws Error if the other side ends before it answers, or is nothing that one can
/// attach to; TimeoutError if it does not answer in the socket's time.
AttachAnswer ask_to_attach(int connection, const AttachRequest& request);

}  // namespace shoal
