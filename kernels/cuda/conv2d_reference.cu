// kernels/conv2d.h on the GPU, as plain loops.
#include "kernels/conv2d.h"
