// A place to run the commands of the documentation.
#pragma once

#include <filesystem>
#include <string>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {

/// A directory that looks like the root of the project after a build: scripts, pages, small data sets, and
/// the programs in build/release/bin and on the PATH. Programs that compute for long are replaced by scripts,
/// which call them with the arguments of the page and then with those of a short run (README.md lists them).
class DocumentedProject {
 public:
  DocumentedProject();

  /// Runs a command as a shell in this directory does, with a free port for its ranks.
  ProcessResult run(const std::string& command) const;
  /// Runs a command of a page, and expects that it succeeds. A training must have computed a batch, on all
  /// ranks of the command.
  ProcessResult expect_success(const std::string& command) const;
  /// Returns whether all programs of a command are in this build.
  bool has_programs_of(const std::string& command) const;
  /// Writes an executable script.
  void write_script(const std::string& name, const std::string& text) const;

  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
  Environment environment;

 private:
  TempDirectory directory_;
  mutable int runs_ = 0;  // commands so far
};

}  // namespace convoy::testing
