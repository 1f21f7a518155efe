// kernels/matmul.h on the GPU.
#include "kernels/matmul.h"
