// What libtorch's headers name of cuSOLVER's dense part.
#pragma once
#include "cusolver_common.h"

typedef struct cusolverDnContext* cusolverDnHandle_t;
