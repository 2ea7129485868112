#include <shoal/internal/workers/train/gloo/gloo_group.h>

#include <ATen/ops/from_blob.h>
#include <shoal/internal/workers/train/gloo/gloo_backend.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

namespace shoal {
namespace {

std::chrono::milliseconds left_of(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(24)));
  return std::max(left, std::chrono::milliseconds(1));
}

/// The first line of Gloo's text, without the place in Gloo's sources that it begins with.
GlooFailure failure_of(int peer, const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (const auto place = text.find("] "); text.starts_with('[') && place != std::string::npos)
    text = text.substr(place + 2);
  // What it adds for people who look into Python's logs.
  text = text.substr(0, text.find(". This is typically"));
  auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  const auto why = text.starts_with("Timed out waiting") ? GlooFailure::late
                   : has("Connection timed out") || has("No route to host") || has("Network is unreachable")
                       ? GlooFailure::unreachable
                       : GlooFailure::ended;
  return GlooFailure(peer, why, text);
}

at::Tensor bytes_at(const void* data, std::size_t bytes) {
  // Gloo reads it where it is sent, and c10d has no form of that for memory that is const.
  return at::from_blob(const_cast<void*>(data), {std::int64_t(bytes)}, at::kByte);
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const c10::intrusive_ptr<c10d::Store>& store, int index, int size,
                                                   const std::string& address, std::chrono::milliseconds timeout) {
  ignore_broken_pipes();
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // By address: the default asks for the host's name, which is 127.0.1.1 on many machines.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 1;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, index, size, options);
}

}  // namespace

struct GlooGroup::Engine {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

GlooGroup::GlooGroup(c10d::Store& store, int store_port, int index, const std::vector<std::string>& addresses,
                     Deadline deadline, std::chrono::milliseconds link_timeout)
    : size_(int(addresses.size())), engine_(std::make_unique<Engine>()) {
  try {
    engine_->group = connect(c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store), index, size_,
                             addresses[std::size_t(index)], left_of(deadline));
  } catch (const std::exception& error) {
    throw failure_of(-1, error);
  }
  sockets_.find(std::set<std::string>(addresses.begin(), addresses.end()), store_port);
  sockets_.keep_alive(link_timeout);
}

// The duplicates go first: the last descriptor of a connection tells the other side that it is over.
GlooGroup::~GlooGroup() { sockets_.forget(); }

GlooGroup::Pending GlooGroup::send(int peer, const void* data, std::size_t bytes, std::uint32_t tag) {
  std::vector<at::Tensor> tensors{bytes_at(data, bytes)};
  try {
    return {std::make_shared<c10::intrusive_ptr<c10d::Work>>(engine_->group->send(tensors, peer, int(tag))), peer};
  } catch (const std::exception& error) {
    throw failure_of(peer, error);
  }
}

GlooGroup::Pending GlooGroup::receive(int peer, void* data, std::size_t bytes, std::uint32_t tag) {
  std::vector<at::Tensor> tensors{bytes_at(data, bytes)};
  try {
    return {std::make_shared<c10::intrusive_ptr<c10d::Work>>(engine_->group->recv(tensors, peer, int(tag))), peer};
  } catch (const std::exception& error) {
    throw failure_of(peer, error);
  }
}

void GlooGroup::wait(const Pending& pending, Deadline deadline) {
  try {
    (*std::static_pointer_cast<c10::intrusive_ptr<c10d::Work>>(pending.work))->wait(left_of(deadline));
  } catch (const std::exception& error) {
    throw failure_of(pending.peer, error);
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(c10d::Store& store, int rank, int size, const std::string& address,
                                                    std::chrono::milliseconds timeout) {
  return connect(c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store), rank, size, address, timeout);
}

}  // namespace shoal
