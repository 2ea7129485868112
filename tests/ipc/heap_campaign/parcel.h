// A patterned block that crosses between processes.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>

#include "tests/ipc/heap_campaign/judge.h"

namespace shoal::test {

/// A hold, and what the block must contain. Put into a queue it stays the sender's, who has it beside the message,
/// unless `given`: then the hold itself goes.
struct Parcel {
  mutable Hold hold;
  Ident ident;
  bool given = false;
};

}  // namespace shoal::test

template <>
struct shoal::Codec<shoal::test::Parcel> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::test::Parcel"); }
  static void encode(Encoder& encoder, const test::Parcel& parcel) {
    encoder.write(parcel.ident);
    encoder.write(parcel.given ? encoder.add(std::move(parcel.hold)) : encoder.add(parcel.hold));
  }
  static test::Parcel decode(Decoder& decoder) {
    const auto ident = decoder.read<test::Ident>();
    return {decoder.take_handle(decoder.read<std::uint32_t>()), ident};
  }
};
