// A data set with a member of each type that archives keep.
#pragma once

#include <ATen/ops/arange.h>
#include <shoal/workers/beton/beton_values.h>

#include <cstdint>
#include <string>

#include "tests/support/pictures/image_files.h"

namespace shoal::test {

struct Row {
  at::Tensor image;
  std::int64_t label;
  double score;
  std::string words;
  BetonJson meta;
  at::Tensor vec;
};

/// Rows of which each member is a function of their number alone.
struct Rows {
  std::int64_t count = 43;
  std::int64_t size() const { return count; }
  Row get(std::int64_t i) const {
    return {smooth_image(8 + i % 5, 6, int(i)),
            i * 3 - 4,
            double(i) / 4,
            i % 7 == 0 ? "" : std::string(std::size_t(i % 5), '-') + "words " + std::to_string(i),
            {"{\"i\": " + std::to_string(i) + "}"},
            at::arange(6, at::kFloat).add(i).view({2, 3})};
  }
};

}  // namespace shoal::test
