// What libtorch's headers name of cuBLASLt.
#pragma once

typedef struct cublasLtContext* cublasLtHandle_t;
