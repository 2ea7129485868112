// c10::IValue, TorchScript's value of any type, as an argument, a result or a message.
#pragma once

#include <ATen/core/ivalue.h>
#include <shoal/tensors/codec.h>

namespace shoal {

/// What crosses: None, tensors, numbers (also complex), bools, strings, devices, lists, dicts and tuples, also nested.
/// Lists and dicts keep their element types. Modules, objects, futures and the like throw std::invalid_argument, which
/// names the kind.
template <>
struct Codec<c10::IValue> {
  static constexpr std::uint64_t schema() { return schema_hash("c10::IValue", std::uint64_t(1)); }
  static void encode(Encoder& encoder, const c10::IValue& value);
  static c10::IValue decode(Decoder& decoder);
};

}  // namespace shoal
