#include <string>

#include "disk.h"

// Replaces the contents of a file by `text`. If the power fails during this, the file has all of its old
// contents or all of the new ones. When save() has returned, it has the new ones, also if the power fails
// then. Use no other name than `name` and `name` + ".new"; a file of this name may be left from an earlier
// failure. disk.h has write(), sync(), rename(), remove() and sync_directory().
void save(Disk& disk, const std::string& name, const std::string& text) {
  // TODO: this is what one writes first.
  disk.write(name, text);
}
