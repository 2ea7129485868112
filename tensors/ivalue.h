// c10::IValue, TorchScript's value of any type, as an argument, a result or a message.
#pragma once

#include <ATen/core/ivalue.h>
#include <shoal/tensors/codec.h>

namespace shoal {

/// None, tensors, numbers (complex ones too), bools, strings, devices, lists, dicts and tuples, nested; a
/// list's and a dict's element types are kept. Modules, objects, futures and the like throw
/// std::invalid_argument by name.
template <>
struct Codec<c10::IValue> {
  static constexpr std::uint64_t schema() { return schema_hash("c10::IValue", std::uint64_t(1)); }
  static void encode(Encoder& encoder, const c10::IValue& value);
  static c10::IValue decode(Decoder& decoder);
};

}  // namespace shoal
