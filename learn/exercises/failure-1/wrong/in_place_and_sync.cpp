// Writes to the file itself.
#include <string>

#include "disk.h"

void save(Disk& disk, const std::string& name, const std::string& text) {
  disk.write(name, text);
  disk.sync(name);
  disk.sync_directory();
}
