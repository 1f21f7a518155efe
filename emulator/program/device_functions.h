// CUDA programs include this header; what it declares is in cuda_runtime.h.
#pragma once

#include <cuda_runtime.h>
