// Renames before the contents are on the disk.
#include <string>

#include "disk.h"

void save(Disk& disk, const std::string& name, const std::string& text) {
  disk.write(name + ".new", text);
  disk.rename(name + ".new", name);
  disk.sync_directory();
}
