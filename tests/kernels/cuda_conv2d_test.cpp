// CPU and GPU agree: kernels/conv2d.h.
#include "kernels/conv2d.h"
