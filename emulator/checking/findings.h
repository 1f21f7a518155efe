// The mistakes that were found in a program: each has a code, which emulator/findings explains, and one
// sentence.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace convoy::emulator {

/// A mistake in the program that runs.
struct Finding {
  std::string code;     // "CE101": the page emulator/findings/CE101.md
  std::string place;    // "sum.cu:12", or "" if the line is unknown
  std::string message;  // one sentence, without the place
};

/// Returns "sum.cu:12: CE101: …".
std::string to_string(const Finding& finding);

/// Collects the findings of this process. Not synchronized: the caller holds the driver's lock, or is the
/// only thread.
class Findings {
 public:
  /// Returns those of this process. They are never destroyed.
  static Findings& get();

  /// Adds a finding, unless one with the same code and place is there. It is printed at once to the standard
  /// error output; or, with CUEMU_REPORT=FILE, appended to this file as a line of JSON.
  void add(Finding finding);
  const std::vector<Finding>& all() const { return all_; }
  void clear();

 private:
  std::vector<Finding> all_;
  std::set<std::string> known_;  // codes with their places
};

/// Appends a line to the file of CUEMU_REPORT=FILE. Returns false if the variable is not set.
bool report_line(const std::string& line);
/// Returns a text as a string of JSON, with its quotes.
std::string json_string(const std::string& text);

/// Returns "sum.cu:12" for an address in the code: the line of the program that was compiled, not that of an
/// emulator's header. Returns "" if the program has no line numbers.
std::string place_of(const void* site);
/// The addresses in the code of a call and of those around it, the innermost one first.
using Callers = std::vector<const void*>;
Callers callers();
/// Returns the first line of the program among them, or "".
std::string place_of(const Callers& callers);

}  // namespace convoy::emulator
