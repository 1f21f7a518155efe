// The name may still be that of the old file.
#include <string>

#include "disk.h"

void save(Disk& disk, const std::string& name, const std::string& text) {
  disk.write(name + ".new", text);
  disk.sync(name + ".new");
  disk.rename(name + ".new", name);
}
