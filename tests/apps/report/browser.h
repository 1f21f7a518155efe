// Opens pages of convoy-report in Chromium: what a script finds in them, and pictures of them.
#pragma once

#include "tests/apps/programs.h"
#include "tests/testing/support/image_files.h"

namespace convoy::testing {

/// Returns the path of Chromium, or an empty string.
std::string find_browser();

/// Returns the page that convoy-report writes of these runs, which are directories in the workshop.
std::string page_of(const Workshop& workshop, const Arguments& runs);

/// Opens the page in a window of `width` pixels, and returns what page_checks.js finds.
Json check_page(const Workshop& workshop, const std::string& page, int width);

/// A part of a page in pixels of the style sheet, and its colors.
struct Window {
  int width, height;
  std::string theme;  // of the page's control
};

/// Returns the width of a fixed text in the page's font, in pixels.
double font_width(const Workshop& workshop, const std::string& page);

/// Returns a picture of the page in the window, RGB, with half as many pixels in each direction.
Picture take_screenshot(const Workshop& workshop, const std::string& page, const Window& window);

/// Returns the picture, RGB, as a PNG file with the 64 colors that are the most frequent.
std::string to_palette_png(const Picture& picture);

/// Returns the picture of a file, RGB.
Picture read_picture(const std::filesystem::path& file);

/// Returns the fraction of the pixels that differ, in a channel by more than 64 of 255. Pictures of two sizes
/// differ in all pixels.
double difference(const Picture& a, const Picture& b);

}  // namespace convoy::testing
