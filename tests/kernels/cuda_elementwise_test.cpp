// CPU and GPU agree: kernels/elementwise.h.
#include "kernels/elementwise.h"
