// CPU and GPU agree: kernels/pool2d.h.
#include "kernels/pool2d.h"
