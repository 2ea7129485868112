#include <shoal/internal/workers/train/reduce/reduce_kernel.h>

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/reduce/reduce_loops.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

using namespace reduce_loops;

[[noreturn]] void refuse(c10::ScalarType type, ReduceOp op, const char* why) {
  throw std::invalid_argument(fmt::format("{} of {} elements: {}", name_of(op), c10::toString(type), why));
}

/// Integers: signed ones only if order matters, since sums of unsigned ones wrap as they should.
template <class Signed>
const ReduceKernel::Loops* integer_loops(ReduceOp op, bool is_signed) {
  using Unsigned = std::make_unsigned_t<Signed>;
  switch (op) {
    case ReduceOp::sum:
      return best<Unsigned, Sum>();
    case ReduceOp::product:
      return best<Unsigned, Product>();
    case ReduceOp::min:
      return is_signed ? best<Signed, Min>() : best<Unsigned, Min>();
    case ReduceOp::max:
      return is_signed ? best<Signed, Max>() : best<Unsigned, Max>();
    case ReduceOp::bit_and:
      return best<Unsigned, And>();
    case ReduceOp::bit_or:
      return best<Unsigned, Or>();
    case ReduceOp::bit_xor:
      return best<Unsigned, Xor>();
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      break;
  }
  return nullptr;
}

template <class T>
const ReduceKernel::Loops* real_loops(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return best<T, Sum>();
    case ReduceOp::product:
      return best<T, Product>();
    case ReduceOp::min:
      return best<T, Min>();
    case ReduceOp::max:
      return best<T, Max>();
    default:
      return nullptr;
  }
}

const ReduceKernel::Loops* bool_loops(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bit_or:
      return best<std::uint8_t, Or>();
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::bit_and:
      return best<std::uint8_t, And>();
    case ReduceOp::bit_xor:
      return best<std::uint8_t, Xor>();
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      break;
  }
  return nullptr;
}

const ReduceKernel::Loops* loops_for(c10::ScalarType type, ReduceOp op) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Bool:
      return bool_loops(op);
    case ScalarType::Byte:
      return integer_loops<std::int8_t>(op, false);
    case ScalarType::Char:
      return integer_loops<std::int8_t>(op, true);
    case ScalarType::Short:
      return integer_loops<std::int16_t>(op, true);
    case ScalarType::UInt16:
      return integer_loops<std::int16_t>(op, false);
    case ScalarType::Int:
      return integer_loops<std::int32_t>(op, true);
    case ScalarType::UInt32:
      return integer_loops<std::int32_t>(op, false);
    case ScalarType::Long:
      return integer_loops<std::int64_t>(op, true);
    case ScalarType::UInt64:
      return integer_loops<std::int64_t>(op, false);
    case ScalarType::Half:
      return real_loops<c10::Half>(op);
    case ScalarType::BFloat16:
      return real_loops<c10::BFloat16>(op);
    case ScalarType::Float:
      return real_loops<float>(op);
    case ScalarType::Double:
      return real_loops<double>(op);
    case ScalarType::ComplexFloat:
      return op == ReduceOp::sum || op == ReduceOp::avg ? best<float, Sum>() : nullptr;
    case ScalarType::ComplexDouble:
      return op == ReduceOp::sum || op == ReduceOp::avg ? best<double, Sum>() : nullptr;
    default:
      refuse(type, op, "this element type cannot be reduced; convert it, for example to float");
  }
}

}  // namespace

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum",     "avg",    "product", "min",       "max",
                                           "bit_and", "bit_or", "bit_xor", "premul_sum"};
  return kNames[int(op)];
}

ReduceKernel::ReduceKernel(c10::ScalarType type, ReduceOp op)
    : loops_(loops_for(type, op)),
      element_size_(c10::elementSize(type)),
      elements_per_item_(c10::isComplexType(type) ? 2 : 1),
      average_(op == ReduceOp::avg) {
  if (loops_) return;
  if (op == ReduceOp::avg) refuse(type, op, "an average of integers would be truncated; use sum");
  refuse(type, op, "the operation is not defined for this type");
}

void ReduceKernel::operator()(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                              std::size_t count) const {
  count *= elements_per_item_;
  const std::size_t size = element_size_ / elements_per_item_;
  const int divisor = average_ ? int(sources.size()) : 1;
  if (sources.size() == 1) {
    for (std::byte* destination : destinations)
      if (destination != sources[0] && count != 0) std::memcpy(destination, sources[0], count * size);
  } else if (sources.size() == 2 && destinations.size() <= 2 && loops_->pair_is_exact) {
    loops_->pair(sources[0], sources[1], destinations.front(), destinations.back(), count, divisor);
  } else {
    loops_->many(sources.data(), sources.size(), destinations.data(), destinations.size(), count, divisor);
  }
}

}  // namespace shoal
