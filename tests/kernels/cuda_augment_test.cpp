// CPU and GPU agree: kernels/augment.h.
#include "kernels/augment.h"
