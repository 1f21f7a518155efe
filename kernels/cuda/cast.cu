// Conversions on the GPU.
#include "kernels/elementwise.h"
