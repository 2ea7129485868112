#include <shoal/internal/workers/checkpoint/parts/value_part.h>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>
#include <shoal/internal/workers/checkpoint/write/shard_contents.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <exception>
#include <vector>

namespace shoal::detail {

ValuePart::ValuePart(const std::string& name, const Type& type, Encode encode, Decode decode)
    : CheckpointPart(name),
      type_(c10::demangle(type.info.name())),
      schema_(type.schema),
      encode_(std::move(encode)),
      decode_(std::move(decode)) {}

void ValuePart::write(ShardContents& to) const {
  auto message = std::make_shared<Encoder>();
  encode_(*message);
  to.add(name(), type_, schema_, std::move(message));
}

std::function<void()> ValuePart::prepare(const CheckpointStep& from) const {
  const auto value = from.at(name());
  return prepared(*value.file, *value.entry);
}

std::function<void()> ValuePart::prepare_from_shard(const CheckpointStep& from, int shard) const {
  const auto value = from.in_shard(name(), shard);
  return prepared(*value.file, *value.entry);
}

std::function<void()> ValuePart::prepared(const CheckpointFile& file, const CheckpointEntry& entry) const {
  const CheckpointStep::Found value{&file, &entry};
  if (entry.kind != CheckpointEntryKind::kValue) value.fail("it is no value there");
  if (entry.schema != schema_)
    value.fail(fmt::format(
        "it is a {} there (schema {:016x}), and a {} in this program (schema {:016x}): the type has changed",
        entry.type, entry.schema, type_, schema_));
  std::vector<std::byte> message(entry.bytes);
  value.read(message);
  Decoder::Handles blocks;
  for (std::int64_t i = 0; i < entry.shape[0]; ++i) {
    // Of the value's own file: another rank's block is none of this value's.
    const CheckpointEntry* block = value.file->find(block_name(name(), std::size_t(i)));
    if (!block || block->kind != CheckpointEntryKind::kBlock) value.fail(fmt::format("its block {} is missing", i));
    Hold hold = allocate_shared(block->bytes);
    value.file->read(*block, {hold.data(), hold.size()});
    blocks.push_back(std::move(hold));
  }
  Decoded decoded;
  try {
    Decoder decoder(message, std::move(blocks));
    decoded = decode_(decoder);
    decoder.finish();
  } catch (const DecodeError& error) {
    value.fail(error.what());
  }
  try {
    decoded.check();
  } catch (const std::exception& error) {
    value.fail(error.what());
  }
  return std::move(decoded.set);
}

}  // namespace shoal::detail
