#include <shoal/workers/transforms/to_float.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <stdexcept>

namespace shoal {
namespace {

void check_type(const char* transform, const at::Tensor& images) {
  if (!images.defined() || (images.scalar_type() != at::kByte && !images.is_floating_point())) {
    throw std::invalid_argument(fmt::format("{}: takes uint8 or floats, was given {}", transform,
                                            images.defined() ? c10::toString(images.scalar_type()) : "nothing"));
  }
}

void check_dtype(const char* transform, at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    throw std::invalid_argument(
        fmt::format("{}: dtype is {}; Float, Half or BFloat16", transform, c10::toString(dtype)));
  }
}

std::int64_t checked_channels(const Normalize& normalize, const at::Tensor& images) {
  check_type("Normalize", images);
  const std::int64_t channels = images.dim() == 3 || images.dim() == 4 ? images.size(-3) : 0;
  auto fits = [channels](const std::vector<double>& values) {
    return values.size() == 1 || std::int64_t(values.size()) == channels;
  };
  if (channels == 0 || !fits(normalize.mean) || !fits(normalize.std)) {
    throw std::invalid_argument(fmt::format(
        "Normalize: {} means and {} stds for a tensor of shape {}; [c, h, w] or [n, c, h, w], and one or c of each",
        normalize.mean.size(), normalize.std.size(), images.sizes().vec()));
  }
  check_normalize(normalize);
  return channels;
}

// (x * unit - mean) / std as x * scale + shift.
struct Line {
  float scale, shift;
};

Line line_of(const Normalize& normalize, std::int64_t channel, double unit) {
  auto of_channel = [channel](const std::vector<double>& values) {
    return values.size() == 1 ? values[0] : values[std::size_t(channel)];
  };
  const double std = of_channel(normalize.std);
  return {float(unit / std), float(-of_channel(normalize.mean) / std)};
}

// Pixels first to first + count of `images` into `out`, of whichever of the three types it is.
void convert(const at::Tensor& images, at::Tensor& out, std::int64_t first, std::int64_t count, const Line& line) {
  const auto* from = images.const_data_ptr<std::uint8_t>() + first;
  const PixelLoops& loops = PixelLoops::best();
  if (out.scalar_type() == at::kFloat) {
    return loops.to_float(from, out.mutable_data_ptr<float>() + first, std::size_t(count), line.scale, line.shift);
  }
  auto* to = static_cast<std::uint16_t*>(out.mutable_data_ptr()) + first;
  (out.scalar_type() == at::kHalf ? loops.to_half : loops.to_bfloat16)(from, to, std::size_t(count), line.scale,
                                                                       line.shift);
}

bool is_bytes_here(const at::Tensor& images) {
  return images.is_cpu() && images.scalar_type() == at::kByte && images.is_contiguous();
}

}  // namespace

void check_normalize(const Normalize& normalize) {
  check_dtype("Normalize", normalize.dtype);
  const std::size_t means = normalize.mean.size(), stds = normalize.std.size();
  if (means == 0 || stds == 0 || (means != stds && means != 1 && stds != 1)) {
    throw std::invalid_argument(
        fmt::format("Normalize: {} means and {} stds; one or one for each channel of each", means, stds));
  }
  for (const double value : normalize.std) {
    if (value == 0) throw std::invalid_argument("Normalize: a std of 0 can't be divided by");
  }
}

at::Tensor ToFloat::operator()(const at::Tensor& images) const {
  check_type("ToFloat", images);
  check_dtype("ToFloat", dtype);
  if (images.is_floating_point()) return images.to(dtype);
  if (is_bytes_here(images)) {
    at::Tensor out = at::empty(images.sizes(), at::TensorOptions(dtype));
    convert(images, out, 0, images.numel(), {1.0F / 255, 0});
    return out;
  }
  return images.to(at::kFloat).mul_(1.0 / 255).to(dtype);
}

at::Tensor Normalize::operator()(const at::Tensor& images) const {
  const std::int64_t channels = checked_channels(*this, images);
  if (is_bytes_here(images)) {
    at::Tensor out = at::empty(images.sizes(), at::TensorOptions(dtype));
    into(images, out);
    return out;
  }
  std::vector<float> scales, shifts;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const Line line = line_of(*this, channel, images.scalar_type() == at::kByte ? 1.0 / 255 : 1);
    scales.push_back(line.scale);
    shifts.push_back(line.shift);
  }
  auto per_channel = [&](const std::vector<float>& values) {
    return at::tensor(values).view({channels, 1, 1}).to(images.device());
  };
  return images.to(at::kFloat).mul(per_channel(scales)).add_(per_channel(shifts)).to(dtype);
}

void Normalize::into(const at::Tensor& images, at::Tensor& out) const {
  const std::int64_t channels = checked_channels(*this, images);
  if (!is_bytes_here(images) || !out.defined() || out.sizes() != images.sizes() || out.scalar_type() != dtype ||
      !out.is_contiguous() || !out.is_cpu()) {
    throw std::invalid_argument(fmt::format(
        "Normalize: into() takes contiguous tensors of one shape on the CPU, uint8 and {}; that of the bytes "
        "is {}",
        c10::toString(dtype), images.sizes().vec()));
  }
  const std::int64_t plane = images.size(-1) * images.size(-2);
  for (std::int64_t at = 0, channel = 0; at < images.numel(); at += plane, channel = (channel + 1) % channels) {
    convert(images, out, at, plane, line_of(*this, channel, 1.0 / 255));
  }
}

}  // namespace shoal
