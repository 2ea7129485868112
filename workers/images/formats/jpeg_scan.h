// The Huffman-coded part of a JPEG, decoded in libjpeg's place.
#pragma once

#include <shoal/internal/workers/images/formats/memory_ahead.h>

struct jpeg_decompress_struct;  // NOLINT(readability-identifier-naming): libjpeg's name

namespace shoal::jpeg {

/// Has what follows decoded faster: code words are two thirds of libjpeg's time for a picture, and take 0.6 of that here. libjpeg
/// asks one of its parts for the coefficients of a few blocks at a time; this puts another function in its place, and all else
/// (headers, tables, the inverse DCT, upsampling) stays libjpeg's. The same pixels, and the same end, of damaged pictures, too; but
/// not the same warnings: libjpeg passes over most words that there are not, and warns of some stray bytes that this does not.
///
/// Behind jpeg_start_decompress(), of a picture whose bytes jpeg_mem_src() was given. What is under way for it is the thread's, for
/// one picture at a time: an earlier one that is gone on with fails. It takes `client_data`. Left to libjpeg are pictures in several
/// scans, with arithmetic coding or restart markers, small ones with other tables than the one before, and all if decodes_scans()
/// is false. Returns whether this one was not.
///
/// `ahead`: is fetched from with each block; null if nothing is. It lives as long as rows are read.
bool take_over_scan(jpeg_decompress_struct& info, MemoryAhead* ahead = nullptr);

/// False without libjpeg's header jpegint.h, or by CMake's option SHOAL_JPEG_WORDS.
bool decodes_scans();

}  // namespace shoal::jpeg
