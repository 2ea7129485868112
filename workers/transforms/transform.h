// What a transform of pictures is.
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

  [[nodiscard]] std::size_t bytes() const { return std::size_t(channels * height * width); }  ///< of such a picture
  bool operator==(const ImageShape&) const = default;
};

/// Where a transform's random numbers for one sample come from. The operation is the transform's place in its Compose,
/// so that two flips in one do not draw alike.
struct Draws {
  SampleKey sample;             ///< whose draws they are
  std::uint64_t operation = 0;  ///< which operation's

  /// From the operation's first draw on.
  [[nodiscard]] SampleRandom random() const { return SampleRandom(sample, operation); }
  /// Those of the step at this place inside the operation.
  [[nodiscard]] Draws of_step(std::uint64_t position) const { return {sample, inner_operation(operation, position)}; }
};

/// Memory for what lies between two steps. It grows to what one picture needs and is used again for the next. One
/// thread.
class TransformScratch {
 public:
  TransformScratch() = default;
  TransformScratch(const TransformScratch&) = delete;
  TransformScratch& operator=(const TransformScratch&) = delete;

  /// `count` values, not initialized, aligned to 64 bytes, until the frame ends that was open.
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  /// Gives back at its end what was taken since its beginning. RAII; nests.
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

  /// This thread's.
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

/// A transform of one picture, uint8 [channels, height, width], contiguous: `output` says the shape that comes out,
/// and throws std::invalid_argument for a picture or parameters that it can't do with; `apply` writes it to `out`,
/// which does not overlap `in`. Transforms are plain aggregates: they cross to workers with their data set, and have no
/// state, so that threads may share one.
template <class T>
concept ByteTransform = requires(const T& transform, const ImageShape& shape, const std::uint8_t* in, std::uint8_t* out,
                                 const Draws& draws, TransformScratch& scratch) {
  { transform.output(shape) } -> std::same_as<ImageShape>;
  transform.apply(in, shape, out, draws, scratch);
};

/// One that can say what becomes of a mask: `move` tells the mask's rows and columns where they go, by the same draws
/// as `apply`. Or nothing becomes of it: colours, say (a member `static constexpr bool kKeepsPlaces = true`).
template <class T>
concept MaskTransform = requires(const T& transform, const ImageShape& shape, const Draws& draws, MaskSources& mask) {
  transform.move(shape, draws, mask);
} || requires { requires T::kKeepsPlaces; };

/// A transform of a whole batch wherever it is, on the CPU or another device: a function of a tensor.
template <class T>
concept TensorTransform = !ByteTransform<T> && requires(const T& transform, const at::Tensor& batch) {
  { transform(batch) } -> std::same_as<at::Tensor>;
};

namespace detail {

/// The longest side that a transform makes, or adds to: what becomes of a picture can be counted in 64 bits then.
inline constexpr std::int64_t kLongestSide = std::int64_t(1) << 24U;
/// The side lengths that {n} and {h, w} stand for in a crop: a square, or what it says. Throws std::invalid_argument
/// that names the transform unless both are positive, and at most kLongestSide.
ImageSize crop_size(const char* transform, const ImageSize& size);
/// Throws std::invalid_argument that names the transform for a picture without pixels.
void check_has_pixels(const char* transform, const ImageShape& shape);
/// Throws std::invalid_argument unless 0 <= p <= 1.
void check_probability(const char* transform, double p);
/// The shape of one picture of uint8 [c, h, w] or, of a batch, [n, c, h, w]. Throws std::invalid_argument that shows
/// the tensor's.
ImageShape shape_of_image(const at::Tensor& image);
ImageShape shape_in_batch(const at::Tensor& batch);
/// A mask as [channels, height, width]. Throws std::invalid_argument unless it is one of a picture of this shape.
at::Tensor mask_planes(const at::Tensor& mask, const ImageShape& picture);

}  // namespace detail
}  // namespace shoal
