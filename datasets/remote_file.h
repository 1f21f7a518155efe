// A file on a web server with the checksum that its download must have. Values without shared state.
#pragma once

#include <string>
#include <vector>

namespace convoy::data {

/// The address of one copy of a file. Mirrors are further RemoteFiles with the same name and checksum.
struct RemoteFile {
  std::string url;   // http or https
  std::string name;  // file name in the target directory
  std::string md5;   // 32 hexadecimal digits
};

/// The mirrors of one file, in the order in which they are tried. All have the same name and checksum.
using Mirrors = std::vector<RemoteFile>;

}  // namespace convoy::data
