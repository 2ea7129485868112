// Values of the tests of containers: whole or not is seen by looking.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/shared_bytes.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ipc/base/kill_labels.h"

namespace shoal::test {

/// All that is in it follows from `number`: an inline value, a long one, one with a block, one with a large block.
struct Sample {
  int number = 0;
  std::string text;
  SharedBytes bytes;
};

inline std::string text_of(int number) {
  return std::string(std::size_t(number % 7 == 0 ? 1000 + number % 300 : number % 40), char('a' + number % 26));
}
inline std::size_t bytes_of(int number) {
  if (number % 3 != 0) return 0;
  return std::size_t(number % 12 == 0 ? 70'000 : 100 + number % 400);
}

inline Sample make_sample(int number) {
  Sample sample{number, text_of(number), {}};
  if (const std::size_t size = bytes_of(number); size != 0) {
    sample.bytes = SharedBytes(size);
    std::fill_n(sample.bytes.data(), size, std::byte(number));
  }
  return sample;
}

inline bool is_whole(const Sample& sample) {
  return sample.text == text_of(sample.number) && sample.bytes.size() == bytes_of(sample.number) &&
         (sample.bytes.size() == 0 ||
          (sample.bytes.data()[0] == std::byte(sample.number) &&  // and each is as the next
           std::memcmp(sample.bytes.data(), sample.bytes.data() + 1, sample.bytes.size() - 1) == 0));
}

/// The kill points that containers pass, by how their labels begin.
inline std::vector<std::string> container_kill_points() {
  std::vector<std::string> labels = all_kill_points();
  std::erase_if(labels, [](const std::string& label) {
    return !label.starts_with("container.") && !label.starts_with("dict.") && !label.starts_with("list.") &&
           !label.starts_with("parcel.") && !label.starts_with("arena.");
  });
  return labels;
}

}  // namespace shoal::test
