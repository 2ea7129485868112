// The types of elements that Hogwild's own loops take, and what they are computed in.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <stdexcept>
#include <type_traits>

namespace shoal::hogwild {

/// What a type is computed in.
template <class T>
using Math = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// What `body.operator()<T>()` returns, of the type T that is `type`. Throws std::invalid_argument for one that is not updated.
template <class Body>
auto with_element_type(c10::ScalarType type, const Body& body) {
  switch (type) {
    case c10::ScalarType::Float:
      return body.template operator()<float>();
    case c10::ScalarType::Double:
      return body.template operator()<double>();
    case c10::ScalarType::Half:
      return body.template operator()<c10::Half>();
    case c10::ScalarType::BFloat16:
      return body.template operator()<c10::BFloat16>();
    default:
      throw std::invalid_argument("hogwild: elements of this type are not updated");
  }
}

}  // namespace shoal::hogwild
