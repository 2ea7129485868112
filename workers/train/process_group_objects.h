// Values from rank to rank of a process group.
#pragma once

#include <shoal/workers/train/point_to_point.h>

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {

// send_object() and recv_object() of point_to_point.h for the groups that init_process_group makes, but those of Gloo alone,
// also between hosts. There a tensor's memory is copied, and what else the value shares (queues, locks, memory of a device)
// stays on its host: std::invalid_argument at the sender. Threads: any. Groups that are not of shoal's get
// std::invalid_argument.

/// This rank's messages in the group: for the functions below.
std::shared_ptr<Mailbox> mailbox_of(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// Like send_object() of a Communicator.
template <class T>
void send_object(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const T& value, int to, int tag = 0) {
  object_messages::send<T>(*mailbox_of(group), value, to, tag);
}
/// Returns the value that the rank has sent.
template <class T>
T recv_object(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int from, int tag = 0) {
  return object_messages::receive<T>(*mailbox_of(group), from, tag).first;
}
/// Returns the first value with this tag that there is, and the rank that has sent it.
template <class T>
std::pair<T, int> recv_object_anysource(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int tag = 0) {
  return object_messages::receive<T>(*mailbox_of(group), object_messages::kAnyRank, tag);
}

}  // namespace shoal
