// Pipelines of pictures.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>
#include <shoal/internal/workers/beton/pipeline/mixing.h>
#include <shoal/internal/workers/beton/pipeline/picture_source.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

namespace shoal::detail {
namespace {

// Pictures whose record says more pixels are looked at before memory is made for them: their JPEG may say otherwise.
constexpr std::int64_t kManyPixels = std::int64_t(1) << 24U;

// Pictures between the one that is decoded and the one that the CPU is asked to fetch.
constexpr std::size_t kPrefetched = 2;

/// A flip that happens while the numbers are written.
struct Flip {
  double p;
  std::uint64_t number;
  bool of(const SampleKey& key) const { return Draws{key, number}.random().chance(p); }
};

class PicturePlan final : public FieldPlan {
 public:
  PicturePlan(std::size_t field, std::vector<NumberedOperation> operations) : field_(field) {
    for (std::size_t at = 0; at < operations.size(); ++at) {
      NumberedOperation& operation = operations[at];
      if (at == 0)
        set_decoder(std::move(operation));
      else if (is_byte_step(operation.operation))
        add_step(std::move(operation));
      else
        add(std::move(operation.operation));
    }
    take_flips();
  }

  void make(const PlannedSamples& samples, const std::string& name, BetonBatch& batch) const override {
    const std::vector<PictureSource> sources = sources_of(samples);
    const ImageShape shape = shape_of(sources[0], true);
    check_shapes(sources, shape);
    BatchValue value = batch_of(std::int64_t(samples.size()), shape, at::kCPU);
    auto* out = static_cast<std::byte*>(value.tensor.mutable_data_ptr());
    fill(sources, samples.keys, shape, out);
    for (const BetonOperation& operation : on_batch_) apply_to_batch(operation, value);
    batch.insert_or_assign(name, std::move(value.tensor));
  }

  BatchOutline outline() const override {
    // Pictures have any size; these are multiples of all that matters, and no memory is made for them. What comes out is
    // known if it is the same of each.
    constexpr std::int64_t kAny = std::int64_t(1) << 20U;
    const ImageShape shape = outlined({3, kAny, kAny});
    const bool has_sizes = shape == outlined({3, kAny, 2 * kAny}) && shape == outlined({3, 2 * kAny, kAny});
    BatchOutline outline{batch_of(2, shape, at::kMeta), has_sizes};
    outline_operations(on_batch_, outline);
    return outline;
  }

 private:
  /// shape_behind() of a picture that is none: a Poison takes those of its own size alone, which stay as they are.
  ImageShape outlined(const ImageShape& picture) const {
    ImageShape shape = behind_decoder(picture);
    for (const NumberedOperation& step : steps_)
      if (!std::holds_alternative<Poison>(step.operation)) shape = output(step, shape);
    return shape;
  }

  BatchValue batch_of(std::int64_t count, const ImageShape& shape, at::Device device) const {
    const at::TensorOptions options = at::TensorOptions(form_.dtype).device(device);
    return {is_torch_ ? at::empty({count, 3, shape.height, shape.width}, options,
                                  form_.in_planes ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast)
                      : at::empty({count, shape.height, shape.width, 3}, options),
            is_torch_};
  }

  // ---------------------------------------------------------------- from a pipeline to a plan

  static bool is_byte_step(const BetonOperation& operation) {
    return std::visit([]<class T>(const T&) { return ByteTransform<T>; }, operation);
  }

  void set_decoder(NumberedOperation operation) {
    const bool is_decoder = std::holds_alternative<SimpleRGBImageDecoder>(operation.operation) ||
                            std::holds_alternative<RandomResizedCropRGBImageDecoder>(operation.operation) ||
                            std::holds_alternative<CenterCropRGBImageDecoder>(operation.operation);
    if (!is_decoder)
      refuse_operation(operation.operation,
                       "a pipeline of pictures begins with SimpleRGBImageDecoder, RandomResizedCropRGBImageDecoder or "
                       "CenterCropRGBImageDecoder");
    if (const auto* random = std::get_if<RandomResizedCropRGBImageDecoder>(&operation.operation)) {
      crop_ = RandomResizedCrop{.size = random->size, .scale = random->scale, .ratio = random->ratio};
      (void)crop_->output({3, 1, 1});  // refuses parameters that cannot be
      scaled_ = random->scaled;
    } else if (const auto* center = std::get_if<CenterCropRGBImageDecoder>(&operation.operation)) {
      if (!(center->ratio > 0 && center->ratio <= 1))
        refuse_operation(operation.operation, "ratio is above 0 and at most 1");
      center_ = *center;
      center_->size = crop_size("CenterCropRGBImageDecoder", center->size);
      scaled_ = center->scaled;
    }
    decoder_number_ = operation.number;
  }

  void add_step(NumberedOperation operation) {
    if (form_.dtype != at::kByte || mixing_ || is_torch_ || !on_batch_.empty())
      refuse_operation(
          operation.operation,
          "it works on a picture's bytes, and so comes before mixing, ToTorchImage and numbers of other types");
    // What a transform says of its parameters, before a picture is there: so large that no crop is too large.
    constexpr std::int64_t kLarge = std::int64_t(1) << 20U;
    if (!std::holds_alternative<Poison>(operation.operation)) (void)output(operation, {3, kLarge, kLarge});
    steps_.push_back(std::move(operation));
  }

  void add(BetonOperation operation) {
    const auto mix_by = [&](const auto& mixing) {
      if (form_.dtype != at::kByte || mixing_ || is_torch_ || !on_batch_.empty())
        refuse_operation(operation, "it works on bytes, once, before ToTorchImage and numbers of other types");
      (void)mixup_share(mixing.alpha, {});  // refuses alpha
      mixing_ = mixing;
    };
    if (const auto* mixup = std::get_if<ImageMixup>(&operation)) return mix_by(*mixup);
    if (const auto* cut_mix = std::get_if<CutMix>(&operation)) return mix_by(*cut_mix);
    if (on_batch_.empty()) {
      if (const auto* normalize = std::get_if<NormalizeImage>(&operation); normalize && form_.dtype == at::kByte)
        return set_lines(*normalize);
      if (const auto* torch_image = std::get_if<ToTorchImage>(&operation); torch_image && !is_torch_) {
        is_torch_ = true;
        form_.in_planes = !torch_image->channels_last;
        return;
      }
      if (const auto* convert = std::get_if<Convert>(&operation)) {
        const at::ScalarType type = type_of(convert->dtype);
        const bool is_floating = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
        // Numbers that were rounded to fewer bits would have to be, then, too.
        if (is_floating && (form_.dtype == at::kByte || form_.dtype == at::kFloat)) {
          form_.dtype = type;
          return;
        }
      }
    }
    if (!works_on_batches(operation)) refuse_operation(operation, "it does not work on pictures");
    on_batch_.push_back(std::move(operation));
  }

  void set_lines(const NormalizeImage& normalize) {
    check_normalize(normalize);
    for (std::size_t color = 0; color < 3; ++color) {
      const double mean = normalize.mean[normalize.mean.size() == 1 ? 0 : color];
      const double std = normalize.std[normalize.std.size() == 1 ? 0 : color];
      form_.lines.scale[color] = float(1 / std);
      form_.lines.shift[color] = float(-mean / std);
    }
    form_.dtype = type_of(normalize.dtype);
  }

  /// Flips at the end of the steps cost nothing where the numbers are written.
  void take_flips() {
    while (!steps_.empty() && !mixing_) {
      const NumberedOperation& last = steps_.back();
      if (const auto* flip = std::get_if<RandomHorizontalFlip>(&last.operation); flip && !mirrored_)
        mirrored_ = Flip{flip->p, last.number};
      else if (const auto* vertical = std::get_if<RandomVerticalFlip>(&last.operation); vertical && !upside_down_)
        upside_down_ = Flip{vertical->p, last.number};
      else
        return;
      (void)output(last, {3, 1, 1});  // refuses a p that is no probability
      steps_.pop_back();
    }
  }

  // ---------------------------------------------------------------- from samples to numbers

  /// All of a batch at once: records lie anywhere in the file, and so the CPU waits for several together.
  std::vector<PictureSource> sources_of(const PlannedSamples& samples) const {
    std::vector<PictureSource> sources;
    sources.reserve(samples.size());
    for (const BetonPlace& place : samples.places) sources.emplace_back(place, field_);
    return sources;
  }

  ImageShape shape_of(const PictureSource& source, bool is_first) const {
    const ImageSize size = source.size();
    if (is_first || size.height * size.width > kManyPixels) source.check();
    return shape_behind({3, size.height, size.width});
  }

  /// What a picture of this shape becomes.
  ImageShape behind_decoder(const ImageShape& shape) const {
    if (crop_) return crop_->output(shape);
    return center_ ? ImageShape{3, center_->size.height, center_->size.width} : shape;
  }
  ImageShape shape_behind(const ImageShape& picture) const {
    ImageShape shape = behind_decoder(picture);
    for (const NumberedOperation& step : steps_) shape = output(step, shape);
    return shape;
  }

  static ImageShape output(const NumberedOperation& step, const ImageShape& shape) {
    return std::visit(
        [&]<class T>(const T& its) {
          if constexpr (ByteTransform<T>)
            return its.output(shape);
          else
            return shape;
        },
        step.operation);
  }

  void check_shapes(std::span<const PictureSource> sources, const ImageShape& shape) const {
    for (const PictureSource& source : sources.subspan(1)) {
      const ImageShape own = shape_of(source, false);
      if (own == shape) continue;
      const BetonPlace &place = source.place(), &first = sources[0].place();
      throw std::invalid_argument(fmt::format(
          "{}: sample {}, field {:?} becomes {} x {}, sample {} of the same batch {} x {}: make them equal by "
          "RandomResizedCropRGBImageDecoder or CenterCropRGBImageDecoder",
          place.file->path(), place.row, place.file->fields()[field_].name, own.height, own.width, first.row,
          shape.height, shape.width));
    }
  }

  std::optional<PictureCrop> crop_of(const ImageSize& size, const SampleKey& key) const {
    if (crop_) {
      SampleRandom random = Draws{key, decoder_number_}.random();
      const ImageShape after = crop_->output({3, size.height, size.width});
      return PictureCrop{random_part(*crop_, size, random), {after.height, after.width}, scaled_};
    }
    if (!center_) return std::nullopt;
    const auto side =
        std::max<std::int64_t>(std::int64_t(center_->ratio * double(std::min(size.height, size.width))), 1);
    check_has_pixels("CenterCropRGBImageDecoder", {3, size.height, size.width});
    return PictureCrop{{(size.height - side) / 2, (size.width - side) / 2, side, side}, center_->size, scaled_};
  }

  /// The picture's bytes behind decoder and steps, [3, h, w].
  void bytes_of(const PictureSource& source, const SampleKey& key, std::uint8_t* out, TransformScratch& scratch) const {
    const TransformScratch::Frame frame(scratch);
    const std::optional<PictureCrop> crop = crop_of(source.size(), key);
    ImageShape shape{3, crop ? crop->size.height : source.size().height, crop ? crop->size.width : source.size().width};
    std::uint8_t* bytes = steps_.empty() ? out : scratch.take<std::uint8_t>(shape.bytes());
    if (crop)
      source.decode(*crop, bytes, scratch);
    else
      source.decode(bytes);
    for (const NumberedOperation& step : steps_) {
      const ImageShape after = output(step, shape);
      std::uint8_t* to = &step == &steps_.back() ? out : scratch.take<std::uint8_t>(after.bytes());
      std::visit(
          [&]<class T>(const T& its) {
            if constexpr (ByteTransform<T>) its.apply(bytes, shape, to, Draws{key, step.number}, scratch);
          },
          step.operation);
      bytes = to;
      shape = after;
    }
  }

  void fill(std::span<const PictureSource> sources, std::span<const SampleKey> keys, const ImageShape& shape,
            std::byte* out) const {
    TransformScratch& scratch = TransformScratch::of_thread();
    const TransformScratch::Frame batch_frame(scratch);
    const std::size_t stride = shape.bytes() * form_.bytes_per_number();
    Neighbours neighbours{};
    if (mixing_) {
      neighbours = {scratch.take<std::uint8_t>(shape.bytes()), scratch.take<std::uint8_t>(shape.bytes()),
                    scratch.take<std::uint8_t>(shape.bytes())};
      bytes_of(sources.back(), keys.back(), neighbours.before, scratch);
    }
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (i + kPrefetched < sources.size()) sources[i + kPrefetched].prefetch();
      const PictureSource& source = sources[i];
      const SampleKey& key = keys[i];
      const TransformScratch::Frame frame(scratch);
      PictureTarget target(form_, out + i * stride, {shape.height, shape.width}, mirrored_ && mirrored_->of(key),
                           upside_down_ && upside_down_->of(key), scratch);
      if (mixing_) {
        bytes_of(source, key, neighbours.own, scratch);
        mix(shape, key, keys.back(), neighbours);
        target.put_planes(neighbours.mixed);
        std::swap(neighbours.before, neighbours.own);
      } else if (steps_.empty()) {
        if (const std::optional<PictureCrop> crop = crop_of(source.size(), key))
          source.decode_into(target, *crop, scratch);
        else
          source.decode_into(target);
      } else if (form_.in_planes && form_.dtype == at::kByte && !mirrored_ && !upside_down_) {
        bytes_of(source, key, reinterpret_cast<std::uint8_t*>(out + i * stride), scratch);
      } else {
        auto* bytes = scratch.take<std::uint8_t>(shape.bytes());
        bytes_of(source, key, bytes, scratch);
        target.put_planes(bytes);
      }
    }
  }

  struct Neighbours {
    std::uint8_t *before, *own, *mixed;
  };

  void mix(const ImageShape& shape, const SampleKey& key, const SampleKey& last, const Neighbours& pictures) const {
    std::visit(
        [&]<class T>(const T& mixing) {
          const SampleKey& from = mixing.same_lambda ? last : key;
          if constexpr (std::same_as<T, ImageMixup>) {
            PixelLoops::best().mix(pictures.own, pictures.before, pictures.mixed, shape.bytes(),
                                   float(mixup_share(mixing.alpha, from)));
          } else {
            const CutBox box = cut_box(mixing.alpha, {shape.height, shape.width}, from);
            std::memcpy(pictures.mixed, pictures.own, shape.bytes());
            for (std::int64_t channel = 0; channel < 3; ++channel)
              for (std::int64_t y = box.top; y < box.bottom; ++y) {
                const std::int64_t at = (channel * shape.height + y) * shape.width + box.left;
                std::memcpy(pictures.mixed + at, pictures.before + at,
                            std::size_t(std::max<std::int64_t>(box.right - box.left, 0)));
              }
          }
        },
        *mixing_);
  }

  std::size_t field_;
  std::optional<RandomResizedCrop> crop_;
  std::optional<CenterCropRGBImageDecoder> center_;
  bool scaled_ = true;
  std::uint64_t decoder_number_ = 0;
  std::vector<NumberedOperation> steps_;
  std::optional<std::variant<ImageMixup, CutMix>> mixing_;
  std::optional<Flip> mirrored_, upside_down_;
  PictureForm form_;
  bool is_torch_ = false;
  std::vector<BetonOperation> on_batch_;
};

}  // namespace

std::unique_ptr<const FieldPlan> plan_pictures(std::size_t field, std::vector<NumberedOperation> operations) {
  return std::make_unique<PicturePlan>(field, std::move(operations));
}

}  // namespace shoal::detail
