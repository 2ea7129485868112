// All transforms of pictures.
#pragma once

#include <shoal/workers/transforms/byte_transforms.h>
#include <shoal/workers/transforms/compose.h>
#include <shoal/workers/transforms/poison.h>
#include <shoal/workers/transforms/random_choice.h>
#include <shoal/workers/transforms/to_float.h>
#include <shoal/workers/transforms/transform_list.h>
