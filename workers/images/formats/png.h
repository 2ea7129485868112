// PNG, by libpng. <shoal/workers/images/decode.h> is what to use.
#pragma once

#include <shoal/workers/images/decode.h>

namespace shoal::png {

at::Tensor decode(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options);
/// A palette's numbers or levels of grey, uint8 [height, width].
at::Tensor decode_numbers(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options);
ImageSize size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options);

}  // namespace shoal::png
