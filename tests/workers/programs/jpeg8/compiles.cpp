// SOURCE of the library with the structures of libjpeg 8.
#include <cstdio>
// Behind FILE.
#include <jpeglib.h>
#if JPEG_LIB_VERSION < 80
#error "jconfig.h of this folder was not found first"
#endif
#include SOURCE
