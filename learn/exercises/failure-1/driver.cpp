#include <algorithm>

#include "program.h"

void lesson::run(Case& at) {
  std::string before, after;
  for (int i = 0; i < at.size(0); ++i) {
    before += static_cast<char>('a' + at.next() % 26);
    after += static_cast<char>('A' + at.next() % 26);
  }
  const auto describe = [&](const std::string& text) {
    return text == "-"    ? "there is no file"
           : text.empty() ? "the file is empty"
                          : "the file has a part of the new contents";
  };
  int calls = 1;
  for (int crash = 0; crash <= calls; ++crash) {
    Disk disk;
    disk.write("model", before);
    disk.write("model.new", "of an earlier failure");
    disk.sync("model");
    disk.sync_directory();
    disk.crash_in(crash < calls ? crash : -1);
    bool has_returned = false;
    try {
      save(disk, "model", after);
      has_returned = true;
      calls = disk.calls();
    } catch (const Disk::Crash&) {
      calls = crash + 2;  // at least one more
    }
    for (const auto& [name, text] : disk.names())
      if (name != "model" && name != "model.new")
        at.fail("there is a file '%s', expected no other names", name.c_str());
    for (const std::string& text : disk.after_crash("model")) {
      if (text == after || (text == before && !has_returned)) continue;
      if (text == before)
        at.fail("save() has returned, and after a failure of the power the file may still be the old one");
      if (has_returned) at.fail("save() has returned, and after a failure of the power %s", describe(text));
      at.fail("the power fails in call %d of the disk, and %s", crash, describe(text));
    }
    if (has_returned) return;
  }
}
