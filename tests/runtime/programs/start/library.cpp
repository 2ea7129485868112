#include "library.h"

#ifndef FACTOR
#define FACTOR 3
#endif

int library_function(int rank, int value) { return FACTOR * value + rank; }

extern "C" int opened_function(int rank, int value) { return FACTOR * value + 10 * rank; }
