#include <shoal/workers/transforms/pixel_loops.h>
#include <shoal/workers/transforms/to_float.h>

#include <stdexcept>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shoal {
namespace {

void check_type(const char* transform, const at::Tensor& images) {
  if (!images.defined() || (images.scalar_type() != at::kByte && !images.is_floating_point())) {
    throw std::invalid_argument(fmt::format("{}: takes uint8 or floats, was given {}", transform,
                                            images.defined() ? c10::toString(images.scalar_type()) : "nothing"));
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
  for (const double value : normalize.std) {
    if (value == 0) throw std::invalid_argument("Normalize: a std of 0 can't be divided by");
  }
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

bool is_bytes_here(const at::Tensor& images) {
  return images.is_cpu() && images.scalar_type() == at::kByte && images.is_contiguous();
}

}  // namespace

at::Tensor ToFloat::operator()(const at::Tensor& images) const {
  check_type("ToFloat", images);
  if (images.is_floating_point()) return images;
  if (is_bytes_here(images)) {
    at::Tensor out = at::empty(images.sizes(), at::TensorOptions(at::kFloat));
    PixelLoops::best().to_float(images.const_data_ptr<std::uint8_t>(), out.mutable_data_ptr<float>(),
                                std::size_t(images.numel()), 1.0F / 255, 0);
    return out;
  }
  return images.to(at::kFloat).mul_(1.0 / 255);
}

at::Tensor Normalize::operator()(const at::Tensor& images) const {
  const std::int64_t channels = checked_channels(*this, images);
  if (is_bytes_here(images)) {
    at::Tensor out = at::empty(images.sizes(), at::TensorOptions(at::kFloat));
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
  return images.mul(per_channel(scales)).add_(per_channel(shifts));
}

void Normalize::into(const at::Tensor& images, at::Tensor& out) const {
  const std::int64_t channels = checked_channels(*this, images);
  if (!is_bytes_here(images) || !out.defined() || out.sizes() != images.sizes() || out.scalar_type() != at::kFloat ||
      !out.is_contiguous() || !out.is_cpu()) {
    throw std::invalid_argument(
        fmt::format("Normalize: into() takes contiguous uint8 and float tensors of one shape on the CPU; that of the "
                    "bytes is {}",
                    images.sizes().vec()));
  }
  const std::int64_t plane = images.size(-1) * images.size(-2);
  const auto* from = images.const_data_ptr<std::uint8_t>();
  auto* to = out.mutable_data_ptr<float>();
  const PixelLoops& loops = PixelLoops::best();
  for (std::int64_t at = 0, channel = 0; at < images.numel(); at += plane, channel = (channel + 1) % channels) {
    const Line line = line_of(*this, channel, 1.0 / 255);
    loops.to_float(from + at, to + at, std::size_t(plane), line.scale, line.shift);
  }
}

}  // namespace shoal
