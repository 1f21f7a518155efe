#include <cstdlib>

#include "datasets/download.h"
#include "kernels/runtime/check.h"

namespace convoy {

std::filesystem::path cache_folder() {
  // XDG Base Directory Specification: a relative path counts as not set.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return std::filesystem::path(cache) / "convoy";
  const char* home = std::getenv("HOME");
  check(home != nullptr && home[0] == '/',
        "--data: neither XDG_CACHE_HOME nor HOME names a folder to keep data in");
  return std::filesystem::path(home) / ".cache" / "convoy";
}

// Checksum: https://www.cs.toronto.edu/~kriz/cifar.html.
std::vector<std::vector<RemoteFile>> cifar10_files() {
  return {{{.url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            .name = "cifar-10-binary.tar.gz",
            .md5 = "c32a1d4ab5d03f1284b67883e8d87530"}}};
}

// The site of the authors (yann.lecun.com) serves them no longer; these are copies, byte for byte.
std::vector<std::vector<RemoteFile>> mnist_files() {
  const auto mirrors = [](const std::string& name, const std::string& md5) -> std::vector<RemoteFile> {
    return {{.url = "https://ossci-datasets.s3.amazonaws.com/mnist/" + name, .name = name, .md5 = md5},
            {.url = "https://storage.googleapis.com/cvdf-datasets/mnist/" + name, .name = name, .md5 = md5}};
  };
  return {mirrors("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
          mirrors("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
          mirrors("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
          mirrors("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c")};
}

}  // namespace convoy
