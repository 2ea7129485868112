// The pipelines of a data set's fields, planned once in each process.
#pragma once

#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/ipc/codec.h>
#include <shoal/workers/beton/beton_operations.h>
#include <shoal/workers/data/named_tensors.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace shoal::detail {

/// What makes batches of samples. As a message it is the pipelines, up to what works in the loop's process; the other
/// process plans them anew. A handle: copies are the same plans. Threads: any.
class BetonPlans {
 public:
  BetonPlans() = default;  ///< each field as it is
  explicit BetonPlans(BetonPipelines pipelines);

  bool empty() const { return state_ == nullptr; }
  const BetonPipelines& pipelines() const;
  /// Plans the pipelines for a file's fields, unless that is done. Throws std::invalid_argument.
  void plan(const BetonFile& file) const;
  /// The batch of these samples; `indices` are their numbers in the data set. Plans first.
  NamedTensors make(std::span<const BetonPlace> places, std::span<const std::int64_t> indices) const;

 private:
  BetonPipelines::const_iterator pipeline_of_field(const BetonFile& file, std::size_t field) const;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace shoal::detail

namespace shoal {

template <>
struct Codec<detail::BetonPlans> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::BetonPlans", schema_of<BetonPipelines>()); }
  static void encode(Encoder& encoder, const detail::BetonPlans& plans);
  static detail::BetonPlans decode(Decoder& decoder);
};

}  // namespace shoal
