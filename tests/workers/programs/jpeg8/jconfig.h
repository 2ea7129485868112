// Debian's libjpeg-turbo as Ubuntu compiles it: with the structures of libjpeg 8.
#include_next <jconfig.h>
#undef JPEG_LIB_VERSION
#define JPEG_LIB_VERSION 80
