// The files of page/ and D3, which CMake puts into the program.
#pragma once

namespace convoy::report::page_files {

extern const char* const kPage;    // page.html, with the places of the others
extern const char* const kStyle;   // style.css
extern const char* const kScript;  // the .js files, in the order of their use
/// D3 (https://d3js.org), which draws; empty if it was not found when this build was configured.
extern const char* const kD3;
extern const char* const kD3License;

}  // namespace convoy::report::page_files
