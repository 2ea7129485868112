// The transforms of bytes that contain no others, as one type.
#pragma once

#include <shoal/workers/transforms/affine.h>
#include <shoal/workers/transforms/auto_augment.h>
#include <shoal/workers/transforms/color.h>
#include <shoal/workers/transforms/color_jitter.h>
#include <shoal/workers/transforms/crop.h>
#include <shoal/workers/transforms/erase.h>
#include <shoal/workers/transforms/flip.h>
#include <shoal/workers/transforms/resize.h>

#include <variant>

namespace shoal {

/// One of the transforms that work on bytes, or of some more types.
template <class... More>
using ByteTransformsAnd =
    std::variant<RandomHorizontalFlip, RandomVerticalFlip, RandomCrop, RandomResizedCrop, Resize, CenterCrop,
                 RandomTranslate, RandomRotation, RandomAffine, Cutout, RandomErasing, ColorJitter, RandomBrightness,
                 RandomContrast, RandomSaturation, RandomHue, RandomGrayscale, RandomSolarize, GaussianBlur,
                 RandAugment, TrivialAugment, More...>;
/// One of them.
using SingleTransform = ByteTransformsAnd<>;

}  // namespace shoal
