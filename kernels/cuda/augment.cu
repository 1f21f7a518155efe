// kernels/augment.h on the GPU.
#include "kernels/augment.h"
