// kernels/softmax_cross_entropy.h on the GPU.
#include "kernels/softmax_cross_entropy.h"
