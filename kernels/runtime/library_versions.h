// Which libraries compute: a timed choice holds for one version of one library.
#pragma once

#include <string>

namespace convoy {

/// "cuDNN 9.19.0", as the library that is loaded says itself; "" where this build has none.
std::string cudnn_version_text();

/// "cuBLASLt 13.1.0".
std::string cublaslt_version_text();

/// Of the CPU: "oneDNN 2.6.3", "OpenBLAS 0.3.21".
std::string onednn_version_text();
std::string openblas_version_text();

}  // namespace convoy
