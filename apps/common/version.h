// The version of the programs.
#pragma once

namespace convoy {

inline constexpr const char* kVersion = CONVOY_VERSION;  // version of the CMake project

}  // namespace convoy
