// kernels/pool2d.h on the GPU.
#include "kernels/pool2d.h"
