// What the tests of .beton files' pipelines read, and how.
#pragma once

#include <ATen/ATen.h>
#include <shoal/workers/beton/beton_dataset.h>
#include <shoal/workers/beton/beton_writer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

namespace shoal::test {

/// A field of each kind. Texts are of different lengths: they come only where they have a pipeline.
struct PipelinePictures {
  std::int64_t count = 6, height = 30, width = 44;
  struct Sample {
    at::Tensor image;
    std::int64_t label;
    double score;
    at::Tensor mask;
    std::string text;
  };
  std::int64_t size() const { return count; }
  Sample get(std::int64_t i) const {
    at::Tensor picture = smooth_image(height, width, int(i));
    return {picture, i * 3, double(i) / 4, picture[1].clone(), std::string(std::size_t(i), char('a' + i))};
  }
};

inline std::string written(const TemporaryFolder& folder, const PipelinePictures& pictures, BetonWriteMode mode) {
  const std::string path = folder.file(mode == BetonWriteMode::raw ? "raw.beton" : "jpg.beton");
  BetonWriter(path, {.page_bytes = 2U << 20U, .images = {.write_mode = mode}}).write(pictures);
  return path;
}

inline std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

inline BetonSample batch_of(const std::string& path, BetonPipelines pipelines, std::int64_t count = 6) {
  pipelines.try_emplace("text");
  return beton_dataset(path, {.pipelines = pipelines}).get_batch(counted(count));
}

inline at::Tensor image_batch(const std::string& path, const BetonPipeline& pipeline, std::int64_t count = 6) {
  return batch_of(path, {{"image", pipeline}}, count).at("image");
}

inline const NormalizeImage kNormalize{{123.7, 116.3, 103.5}, {58.4, 57.1, 57.4}};

/// By plain loops, in double, as FFCV's table: (x - mean) / std.
inline at::Tensor normalized(const at::Tensor& planes) {
  at::Tensor result = at::empty(planes.sizes(), at::kDouble);
  for (std::int64_t c = 0; c < 3; ++c)
    result.select(1, c).copy_((planes.select(1, c).to(at::kDouble) - kNormalize.mean[std::size_t(c)]) /
                              kNormalize.std[std::size_t(c)]);
  return result;
}

}  // namespace shoal::test
