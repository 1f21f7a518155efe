#pragma once

namespace convoy {

inline constexpr const char* kVersion = CONVOY_VERSION;  // of the CMake project

}  // namespace convoy
