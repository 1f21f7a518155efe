// The emulator finds what it promises to find.
#include "tests/cuda_emulator/emulator.h"
