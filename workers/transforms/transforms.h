// All transforms of pictures.
#pragma once

#include <shoal/workers/transforms/color_jitter.h>
#include <shoal/workers/transforms/compose.h>
#include <shoal/workers/transforms/crop.h>
#include <shoal/workers/transforms/flip.h>
#include <shoal/workers/transforms/resize.h>
#include <shoal/workers/transforms/to_float.h>
#include <shoal/workers/transforms/transform_list.h>
