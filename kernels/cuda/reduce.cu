// kernels/reduce.h on the GPU.
#include "kernels/reduce.h"
