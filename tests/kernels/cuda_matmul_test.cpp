// CPU and GPU agree: kernels/matmul.h.
#include "kernels/matmul.h"
