// CPU and GPU agree: kernels/reduce.h.
#include "kernels/reduce.h"
