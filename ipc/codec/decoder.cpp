#include <shoal/internal/ipc/codec/decoder.h>

#include <fmt/format.h>

namespace shoal {

std::size_t Decoder::read_count(std::size_t least) {
  auto count = read<std::uint64_t>();
  std::size_t most = left() / least;
  if (count > most) throw DecodeError(fmt::format("{} elements announced where at most {} fit", count, most));
  return count;
}

const Hold& Decoder::handle(std::uint32_t index) const {
  if (index >= handles_.size())
    throw DecodeError(fmt::format("handle {} of a message with {} handles", index, handles_.size()));
  if (!handles_[index])
    throw DecodeError(fmt::format("handle {} of a message is used by two values of different types", index));
  return handles_[index];
}

Hold Decoder::take_handle(std::uint32_t index) {
  (void)handle(index);
  return std::move(handles_[index]);
}

std::shared_ptr<Hold> Decoder::shared_hold(std::uint32_t index) {
  static constexpr char kKind = 0;
  std::shared_ptr<void>& made = object(index, &kKind);
  if (!made) made = std::make_shared<Hold>(take_handle(index));
  return std::static_pointer_cast<Hold>(made);
}

Decoder::Object& Decoder::object_of(std::uint32_t index, const void* kind) {
  if (objects_.size() < handles_.size()) objects_.resize(handles_.size());
  if (index >= objects_.size()) (void)handle(index);  // throws
  Object& object = objects_[index];
  if (!object.made && !object.kept) object.kind = kind;
  if (object.kind != kind)
    throw DecodeError(fmt::format("handle {} of a message is used by two values of different types", index));
  return object;
}

std::shared_ptr<void>& Decoder::object(std::uint32_t index, const void* kind) { return object_of(index, kind).made; }

Kept& Decoder::kept(std::uint32_t index, const void* kind) { return object_of(index, kind).kept; }

void Decoder::finish() const {
  if (!bytes_.empty()) throw DecodeError(fmt::format("{} bytes left behind the value", bytes_.size()));
}

void Decoder::fail_short(std::size_t size) const {
  throw DecodeError(fmt::format("the message ends: {} bytes wanted, {} left", size, bytes_.size()));
}

void Decoder::fail_deep() { throw DecodeError(fmt::format("values nested deeper than {} levels", kDeepestNesting)); }

}  // namespace shoal
