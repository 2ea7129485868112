// The concept of a transform of pictures, and what transforms are given.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/transforms/masks/mask_sources.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/images/decode.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace shoal {

/// Shape of one picture of bytes, [channels, height, width], contiguous.
struct ImageShape {
  std::int64_t channels = 0;  ///< 3 for RGB, 1 for grey
  std::int64_t height = 0;    ///< rows
  std::int64_t width = 0;     ///< columns

  std::size_t pixels() const { return std::size_t(height * width); }      ///< of such a picture
  std::size_t bytes() const { return std::size_t(channels) * pixels(); }  ///< likewise
  bool operator==(const ImageShape&) const = default;
};

/// The source of a transform's random numbers for one sample. The operation is the transform's place in its Compose, so
/// two flips in one Compose draw different numbers.
struct Draws {
  SampleKey sample;             ///< whose draws they are
  std::uint64_t operation = 0;  ///< which operation's

  /// From the operation's first draw on.
  SampleRandom random() const { return SampleRandom(sample, operation); }
  /// Those of the step at this place inside the operation.
  Draws of_step(std::uint64_t position) const { return {sample, inner_operation(operation, position)}; }
};

/// Memory for what lies between two steps. It grows to what one picture needs, and is used again for the next. One
/// thread.
class TransformScratch {
 public:
  TransformScratch() = default;
  TransformScratch(const TransformScratch&) = delete;
  TransformScratch& operator=(const TransformScratch&) = delete;

  /// `count` values, not initialized, aligned to 64 bytes, until the open frame ends.
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  /// At its end gives back what was taken since its beginning. RAII; nests.
  class Frame {
   public:
    /// Begins; the end is the object's.
    explicit Frame(TransformScratch& scratch) : scratch_(scratch), used_(scratch.used_) {}
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    ~Frame() { scratch_.used_ = used_; }

   private:
    TransformScratch& scratch_;
    std::size_t used_;
  };

  /// This thread's TransformScratch.
  static TransformScratch& of_thread();

 private:
  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size;
  };
  void* take_bytes(std::size_t size);

  std::vector<Piece> pieces_;  // one for each take() of the deepest frame so far
  std::size_t used_ = 0;
};

/// A transform of one picture, uint8 [channels, height, width], contiguous. `output` returns the shape of the result,
/// and throws std::invalid_argument for a picture or parameters that it cannot handle. `apply` writes the result to
/// `out`, which does not overlap `in`. Transforms are plain aggregates: they cross to workers with their data set and
/// have no state, so threads may share one.
template <class T>
concept ByteTransform = requires(const T& transform, const ImageShape& shape, const std::uint8_t* in, std::uint8_t* out,
                                 const Draws& draws, TransformScratch& scratch) {
  { transform.output(shape) } -> std::same_as<ImageShape>;
  transform.apply(in, shape, out, draws, scratch);
};

/// A transform that can also transform a mask: `move` tells the mask's rows and columns where they go, by the same
/// draws as `apply`. If it leaves masks alone, as colours do, it has a member
/// `static constexpr bool kKeepsPlaces = true` instead.
template <class T>
concept MaskTransform = requires(const T& transform, const ImageShape& shape, const Draws& draws, MaskSources& mask) {
  transform.move(shape, draws, mask);
} || requires { requires T::kKeepsPlaces; };

/// A transform of a whole batch, on the CPU or another device: a function of a tensor.
template <class T>
concept TensorTransform = !ByteTransform<T> && requires(const T& transform, const at::Tensor& batch) {
  { transform(batch) } -> std::same_as<at::Tensor>;
};

namespace detail {

/// The longest side that a transform makes or adds to, so that the size of a result fits into 64 bits.
inline constexpr std::int64_t kLongestSide = std::int64_t(1) << 24U;
/// The side lengths that {n} (a square) or {h, w} mean in a crop. Throws std::invalid_argument, which names the
/// transform, unless both are positive and at most kLongestSide.
ImageSize crop_size(const char* transform, const ImageSize& size);
/// Throws std::invalid_argument, which names the transform, for a picture without pixels.
void check_has_pixels(const char* transform, const ImageShape& shape);
/// Throws std::invalid_argument unless 0 <= p <= 1.
void check_probability(const char* transform, double p);
/// The shape of one picture in uint8 [c, h, w] or, in a batch, [n, c, h, w]. Throw std::invalid_argument, which shows
/// the tensor's shape.
ImageShape shape_of_image(const at::Tensor& image);
ImageShape shape_in_batch(const at::Tensor& batch);
/// Returns the mask as [channels, height, width]. Throws std::invalid_argument unless it fits a picture of this shape.
at::Tensor mask_planes(const at::Tensor& mask, const ImageShape& picture);

}  // namespace detail
}  // namespace shoal
