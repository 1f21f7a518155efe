// CPU and GPU agree: kernels/optimizer_step.h.
#include "kernels/optimizer_step.h"
