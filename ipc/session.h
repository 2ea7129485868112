// A session: a root process and all that it started share one memory and one process table, and publish values by name.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/codec/base.h>
#include <shoal/internal/ipc/names/names.h>
#include <shoal/internal/ipc/process/session.h>

#include <utility>

namespace shoal {

template <class T>
void Session::publish(const std::string& key, const T& value) {
  Encoder encoder;
  encode(encoder, value);
  publish_message(key, schema_of<T>(), encoder);
}

template <class T>
T Session::lookup(const std::string& key, std::chrono::nanoseconds timeout) {
  Published found = find_published(key, schema_of<T>(), Deadline::after(timeout));
  Decoder decoder(found.bytes, std::move(found.handles));
  T value = decode<T>(decoder);
  decoder.finish();
  return value;
}

}  // namespace shoal
