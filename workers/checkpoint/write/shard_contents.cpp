#include <shoal/internal/workers/checkpoint/write/shard_contents.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/workers/checkpoint/write/stream_copy.h>
#include <shoal/ipc/heap.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

/// From this size on a tensor is copied by several threads, if there are any.
constexpr std::size_t kThreadBytes = std::size_t(4) << 20;
/// From this size on a shard goes around the cache, which would not hold it: 1.4 times as fast (docs/checkpoints.md). A
/// smaller one stays in it for the process that writes.
constexpr std::size_t kStreamBytes = std::size_t(24) << 20;

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};

void add_pieces(std::vector<Copy>& copies, std::byte* to, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(from);
  const std::size_t piece =
      at::get_num_threads() == 1 ? bytes : std::max(kThreadBytes, bytes / std::size_t(at::get_num_threads()) + 1);
  while (bytes > 0) {
    const std::size_t some = std::min(bytes, piece);
    copies.push_back({to, at, some});
    to += some;
    at += some;
    bytes -= some;
  }
}

bool is_one_piece(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

bool shares_places(const at::Tensor& tensor) {
  return tensor.numel() != 0 && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

std::string block_name(const std::string& value, std::size_t number) { return fmt::format("{}#{}", value, number); }

std::string checkpoint_type_name(at::ScalarType type) {
  static constexpr std::array<std::pair<at::ScalarType, const char*>, 19> kNames{{
      {at::kBool, "bool"},
      {at::kByte, "uint8"},
      {at::kUInt16, "uint16"},
      {at::kUInt32, "uint32"},
      {at::kUInt64, "uint64"},
      {at::kChar, "int8"},
      {at::kShort, "int16"},
      {at::kInt, "int32"},
      {at::kLong, "int64"},
      {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"},
      {at::kFloat, "float32"},
      {at::kDouble, "float64"},
      {at::kComplexHalf, "complex32"},
      {at::kComplexFloat, "complex64"},
      {at::kComplexDouble, "complex128"},
      {at::kFloat8_e4m3fn, "float8_e4m3fn"},
      {at::kFloat8_e5m2, "float8_e5m2"},
      {at::ScalarType::Float8_e8m0fnu, "float8_e8m0fnu"},
  }};
  const auto found = std::ranges::find(kNames, type, &std::pair<at::ScalarType, const char*>::first);
  return found == kNames.end() ? std::string() : found->second;
}

void ShardContents::add(CheckpointEntry entry, Source source) {
  if (!names_.insert(entry.name).second)
    throw std::invalid_argument(fmt::format("a checkpoint with two entries '{}'", entry.name));
  entries_.push_back(std::move(entry));
  sources_.push_back(std::move(source));
}

void ShardContents::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw std::invalid_argument(fmt::format("'{}' of a checkpoint is an undefined tensor", name));
  const std::string type = tensor.layout() == at::kStrided && !tensor.is_meta() && !tensor.is_quantized()
                               ? checkpoint_type_name(tensor.scalar_type())
                               : std::string();
  if (type.empty())
    throw std::invalid_argument(fmt::format(
        "'{}' of a checkpoint is a tensor of type {}, layout {}, device {}: only strided ones of plain types go into "
        "one; put it into a value",
        name, c10::toString(tensor.scalar_type()), c10::str(tensor.layout()), tensor.device().str()));
  if (shares_places(tensor))
    throw std::invalid_argument(fmt::format(
        "'{}' of a checkpoint is an expanded tensor, [{}] with strides [{}]: several elements are one place in "
        "memory, so nothing could be loaded into it. Keep its clone() instead",
        name, fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", ")));
  add(CheckpointEntry{.name = name, .type = type, .shape = tensor.sizes().vec(), .bytes = tensor.nbytes()},
      Source{tensor.detach(), nullptr, {}});
}

void ShardContents::add(const std::string& name, const std::string& type, std::uint64_t schema,
                        std::shared_ptr<Encoder> message) {
  const auto handles = message->handles();
  add(CheckpointEntry{.name = name,
                      .kind = CheckpointEntryKind::kValue,
                      .type = type,
                      .schema = schema,
                      .shape = {std::int64_t(handles.size())},
                      .bytes = message->bytes().size()},
      Source{{}, message, {}});
  BlockMemory memory = SessionCore::current().heap().memory();
  for (std::size_t i = 0; i < handles.size(); ++i) {
    Hold block = Hold::share_of(handles[i].block);
    // relaxed: it is set for good before anybody has a hold.
    const BlockType kind = memory.header(block.block()).type.load(std::memory_order_relaxed);
    const std::byte* data = block.data();
    std::size_t bytes = block.size();
    if (kind == BlockType::kReadOnly) {
      const ReadOnlyView::Block elements = ReadOnlyView::look_at(block);
      data = static_cast<const std::byte*>(elements.data);
      bytes = elements.bytes;
    } else if (DeviceIpc::is_export(block.block())) {
      throw std::invalid_argument(fmt::format(
          "'{}' of a checkpoint, a {}, has a tensor on a device: in a message it is a handle, which ends with "
          "the process that has the memory. Save tensor.cpu()",
          name, type));
    } else if (kind != BlockType::kBytes) {
      throw std::invalid_argument(
          fmt::format("'{}' of a checkpoint, a {}, has a handle of a queue, a lock or the like: these end with their "
                      "session. Save what is in them",
                      name, type));
    }
    add(CheckpointEntry{.name = block_name(name, i), .kind = CheckpointEntryKind::kBlock, .bytes = bytes},
        Source{{}, nullptr, std::move(block), data});
  }
}

std::uint64_t ShardContents::lay_out(std::int64_t step, std::uint64_t run) {
  CheckpointHeader header{.step = step, .run = run, .rank = std::uint32_t(rank_), .ranks = std::uint32_t(ranks_)};
  head_ = encode_head(header, entries_);
  return header.file_bytes;
}

void ShardContents::copy_to(std::span<std::byte> image) const {
  const at::NoGradGuard no_grad;
  std::memcpy(image.data(), head_.data(), head_.size());
  std::vector<Copy> copies;
  copies.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const CheckpointEntry& entry = entries_[i];
    const Source& source = sources_[i];
    std::byte* to = image.data() + entry.offset;
    // The buffer may have been another shard before.
    std::memset(to + entry.bytes, 0, checkpoint_aligned(entry.bytes) - entry.bytes);
    if (entry.bytes == 0) continue;
    if (source.message)
      add_pieces(copies, to, source.message->bytes().data(), entry.bytes);
    else if (source.block)
      add_pieces(copies, to, source.data, entry.bytes);
    else if (is_one_piece(source.tensor))
      add_pieces(copies, to, source.tensor.const_data_ptr(), entry.bytes);
    else
      at::from_blob(to, source.tensor.sizes(), at::TensorOptions(source.tensor.scalar_type())).copy_(source.tensor);
  }
  const auto copy_some = [&](std::int64_t from, std::int64_t to) {
    for (const Copy& copy : std::span(copies).subspan(std::size_t(from), std::size_t(to - from))) {
      if (image.size() < kStreamBytes)
        std::memcpy(copy.to, copy.from, copy.bytes);
      else
        stream_copy(copy.to, copy.from, copy.bytes);
    }
  };
  if (image.size() < kThreadBytes)
    copy_some(0, std::int64_t(copies.size()));  // to wake threads takes longer
  else
    at::parallel_for(0, std::int64_t(copies.size()), 1, copy_some);
}

}  // namespace shoal::detail
