// A picture of a file, decoded as a pipeline's first operation says.
#pragma once

#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/internal/workers/beton/pipeline/picture_target.h>
#include <shoal/workers/beton/beton_operations.h>

#include <cstdint>
#include <optional>

namespace shoal::detail {

/// What is taken of a picture, and how large that becomes. Without a part: the whole picture as it is.
struct PictureCrop {
  ImagePart part;
  ImageSize size;
  bool scaled;
};

/// The picture in one sample's field, not yet decoded. Valid as long as its file.
class PictureSource {
 public:
  PictureSource(const BetonPlace& place, std::size_t field);

  ImageSize size() const { return {image_.height, image_.width}; }
  /// Throws DatasetError unless a JPEG's own header has the record's size: before memory is made for its pixels.
  void check() const;

  /// Asks the CPU for the first bytes, so that decoding them does not wait for memory. A hint.
  void prefetch() const;
  /// Whose picture it is.
  const BetonPlace& place() const { return place_; }

  /// The whole picture, straight into the batch.
  void decode_into(PictureTarget& target) const;
  /// A part of it, resized on its way there.
  void decode_into(PictureTarget& target, const PictureCrop& crop, TransformScratch& scratch) const;
  /// The whole picture, [3, height, width].
  void decode(std::uint8_t* planes) const;
  /// A part of it, resized, [3, size].
  void decode(const PictureCrop& crop, std::uint8_t* planes, TransformScratch& scratch) const;

 private:
  template <class Work>
  void named(Work&& work) const;
  int denominator_of(const PictureCrop& crop) const;
  template <class Put>
  void for_each_row(const ImagePart& region, int denominator, Put&& put) const;
  void decode_region(const ImagePart& region, int denominator, std::uint8_t* planes) const;

  const BetonPlace& place_;
  std::size_t field_;
  BetonImage image_;
};

}  // namespace shoal::detail
