// kernels/optimizer_step.h on the GPU.
#include "kernels/optimizer_step.h"
