// Which libraries compute on the GPU: a timed choice holds for one version of one library.
#pragma once

#include <string>

namespace convoy {

/// "cuDNN 9.19.0", as the library that is loaded says itself; "" where this build has none.
std::string cudnn_version_text();

/// "cuBLASLt 13.1.0".
std::string cublaslt_version_text();

}  // namespace convoy
