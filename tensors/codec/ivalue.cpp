#include <shoal/tensors/ivalue.h>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/script_type_parser.h>

#include <algorithm>
#include <complex>
#include <stdexcept>

namespace shoal {
namespace {

enum class Tag : std::uint8_t {
  kNone,
  kTensor,
  kDouble,
  kComplex,
  kInt,
  kBool,
  kString,
  kDevice,
  kTuple,
  kList,
  kDict
};

/// Types cross as their Python annotation, which libtorch reads itself.
c10::TypePtr read_type(Decoder& decoder) {
  auto text = shoal::decode<std::string>(decoder);
  try {
    return torch::jit::ScriptTypeParser().parseType(text);
  } catch (const std::exception&) {
    throw DecodeError(fmt::format("an IValue of an unknown type '{}'", text));
  }
}

/// Whether ScriptTypeParser reads what annotation_str() says of it: names of classes and named tuples it does not know.
bool is_readable(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ClassType:
    case c10::TypeKind::InterfaceType:
    case c10::TypeKind::EnumType:
      return false;
    case c10::TypeKind::TupleType:
      if (type.expectRef<c10::TupleType>().schema()) return false;
      break;
    default:
      break;
  }
  return std::ranges::all_of(type.containedTypes(), [](const c10::TypePtr& part) { return is_readable(*part); });
}

/// libtorch knows no type of an undefined tensor.
bool is_undefined(const c10::IValue& value) { return value.isTensor() && !value.toTensor().defined(); }

bool is_named(const c10::ivalue::Tuple& tuple) {
  return std::ranges::none_of(tuple.elements(), &is_undefined) && tuple.type()->schema() != nullptr;
}

bool is_of_type(const c10::IValue& value, const c10::Type& type) {
  if (is_undefined(value)) return c10::TensorType::get()->isSubtypeOf(type);
  return value.type<c10::Type>()->isSubtypeOf(type);
}

[[noreturn]] void mismatch(const c10::TypePtr& type) {
  throw DecodeError(fmt::format("an element of an IValue is not of its type {}", type->annotation_str()));
}

void write_type(Encoder& encoder, const c10::TypePtr& type) {
  if (!is_readable(*type))
    throw std::invalid_argument(fmt::format(
        "an IValue to another process: a list or dict of {}, whose name means nothing there; send its parts as a tuple",
        type->annotation_str()));
  shoal::encode(encoder, type->annotation_str());
}

}  // namespace

void Codec<c10::IValue>::encode(Encoder& encoder, const c10::IValue& value) {
  auto put = [&](Tag tag, const auto& content) {
    encoder.write(tag);
    shoal::encode(encoder, content);
  };
  if (value.isNone()) return encoder.write(Tag::kNone);
  if (value.isTensor()) return put(Tag::kTensor, value.toTensor());
  if (value.isDouble()) return put(Tag::kDouble, value.toDouble());
  if (value.isInt()) return put(Tag::kInt, value.toInt());
  if (value.isBool()) return put(Tag::kBool, value.toBool());
  if (value.isString()) return put(Tag::kString, value.toStringRef());
  if (value.isDevice()) return put(Tag::kDevice, value.toDevice().str());
  if (value.isComplexDouble()) {
    c10::complex<double> number = value.toComplexDouble();
    return put(Tag::kComplex, std::complex<double>(number.real(), number.imag()));
  }
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    if (is_named(value.toTupleRef()))
      throw std::invalid_argument(
          fmt::format("an IValue to another process: a {}, whose names mean nothing there; send a plain tuple",
                      value.toTupleRef().type()->annotation_str()));
    encoder.write(Tag::kTuple);
    encoder.write(std::uint64_t(elements.size()));
    for (const c10::IValue& element : elements) shoal::encode(encoder, element);
    return;
  }
  if (value.isList()) {
    c10::List<c10::IValue> list = value.toList();
    encoder.write(Tag::kList);
    write_type(encoder, list.elementType());
    encoder.write(std::uint64_t(list.size()));
    for (std::size_t i = 0; i < list.size(); ++i) shoal::encode(encoder, c10::IValue(list.get(i)));
    return;
  }
  if (value.isGenericDict()) {
    c10::Dict<c10::IValue, c10::IValue> dict = value.toGenericDict();
    encoder.write(Tag::kDict);
    write_type(encoder, dict.keyType());
    write_type(encoder, dict.valueType());
    encoder.write(std::uint64_t(dict.size()));
    for (const auto& entry : dict) {
      shoal::encode(encoder, c10::IValue(entry.key()));
      shoal::encode(encoder, c10::IValue(entry.value()));
    }
    return;
  }
  throw std::invalid_argument(fmt::format("an IValue to another process: {} does not cross", value.tagKind()));
}

c10::IValue Codec<c10::IValue>::decode(Decoder& decoder) {
  switch (decoder.read<Tag>()) {
    case Tag::kNone:
      return {};
    case Tag::kTensor:
      return shoal::decode<at::Tensor>(decoder);
    case Tag::kDouble:
      return shoal::decode<double>(decoder);
    case Tag::kInt:
      return shoal::decode<std::int64_t>(decoder);
    case Tag::kBool:
      return shoal::decode<bool>(decoder);
    case Tag::kString:
      return shoal::decode<std::string>(decoder);
    case Tag::kComplex: {
      auto number = shoal::decode<std::complex<double>>(decoder);
      return c10::complex<double>(number.real(), number.imag());
    }
    case Tag::kDevice:
      try {
        return c10::Device(shoal::decode<std::string>(decoder));
      } catch (const c10::Error&) {
        throw DecodeError("an IValue with an unknown device");
      }
    case Tag::kTuple: {
      std::vector<c10::IValue> elements;
      for (std::size_t left = decoder.read_count(1); left != 0; --left)
        elements.push_back(shoal::decode<c10::IValue>(decoder));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    case Tag::kList: {
      c10::TypePtr type = read_type(decoder);
      c10::impl::GenericList list(type);
      for (std::size_t left = decoder.read_count(1); left != 0; --left) {
        auto element = shoal::decode<c10::IValue>(decoder);
        if (!is_of_type(element, *type)) mismatch(type);
        list.push_back(std::move(element));
      }
      return list;
    }
    case Tag::kDict: {
      c10::TypePtr key_type = read_type(decoder), value_type = read_type(decoder);
      static const c10::TypeKind kKeys[] = {
          c10::TypeKind::StringType,  c10::TypeKind::IntType,    c10::TypeKind::BoolType,     c10::TypeKind::FloatType,
          c10::TypeKind::ComplexType, c10::TypeKind::TensorType, c10::TypeKind::DeviceObjType};
      if (std::ranges::find(kKeys, key_type->kind()) == std::end(kKeys)) mismatch(key_type);
      c10::impl::GenericDict dict(key_type, value_type);
      for (std::size_t left = decoder.read_count(2); left != 0; --left) {
        auto key = shoal::decode<c10::IValue>(decoder), value = shoal::decode<c10::IValue>(decoder);
        if (!is_of_type(key, *key_type)) mismatch(key_type);
        if (!is_of_type(value, *value_type)) mismatch(value_type);
        dict.insert_or_assign(std::move(key), std::move(value));
      }
      return dict;
    }
  }
  throw DecodeError("an IValue with an unknown tag");
}

}  // namespace shoal
