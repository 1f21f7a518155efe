// kernels/batchnorm.h on the GPU.
#include "kernels/batchnorm.h"
