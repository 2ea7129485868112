// JPEG, by libjpeg. <shoal/workers/images/decode.h> is what to use.
#pragma once

#include <shoal/workers/images/decode.h>

namespace shoal::jpeg {

at::Tensor decode(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options);
ImageSize size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options);

}  // namespace shoal::jpeg
