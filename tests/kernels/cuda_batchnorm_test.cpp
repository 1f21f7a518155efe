// CPU and GPU agree: kernels/batchnorm.h.
#include "kernels/batchnorm.h"
