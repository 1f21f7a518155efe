#include "tests/apps/report/browser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/datasets/formats/readers.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kColors = 64;

/// Collects errors from the first script on.
constexpr const char* kBefore = R"html(<script>
const problems = [];
addEventListener("error", (event) => problems.push(event.message || "a file cannot be loaded"), true);
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(`forbidden: ${event.violatedDirective}`));
console.error = (...texts) => problems.push(texts.join(" "));
</script>)html";

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned group = 0, bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 0xff);
  }
  return bytes;
}

/// Opens the page with a script at its end, in a window of this size. `action` is a flag of Chromium: what it does then.
ProcessResult open_page(const Workshop& workshop, std::string page, const std::string& script, int width,
                        int height, const std::string& action) {
  page.insert(page.find("<style>"), kBefore);
  page.insert(page.find("</body>"), "<script>" + script + "</script>");
  const fs::path file = workshop.path("opened.html");
  std::ofstream(file) << page;
  // The clock of the page runs faster than time. Its end bounds how long a script may wait; an image takes a second.
  return run_program({find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                      "--virtual-time-budget=600000",
                      "--window-size=" + std::to_string(width) + "," + std::to_string(height),
                      "--force-device-scale-factor=" + std::string(action == "--dump-dom" ? "1" : "0.5"),
                      action, "file://" + file.string()});
}

/// Returns the contents of an element that the script adds to the page.
std::string find_text(const Workshop& workshop, const std::string& page, const std::string& script, int width,
                      const std::string& id) {
  const ProcessResult drawn = open_page(workshop, page, script, width, 900, "--dump-dom");
  const std::string begin = "<pre id=\"" + id + "\">";
  const std::size_t from = drawn.out.find(begin);
  EXPECT_NE(from, std::string::npos) << drawn.err;
  if (from == std::string::npos) return "";
  const std::size_t text = from + begin.size();
  return drawn.out.substr(text, drawn.out.find("</pre>", text) - text);
}

using Color = std::array<std::uint8_t, 3>;

Color color_at(const Picture& picture, std::size_t pixel) {
  const std::uint8_t* const values = &picture.pixels[3 * pixel];
  return {values[0], values[1], values[2]};
}

int distance(const Color& a, const Color& b) {
  int largest = 0;
  for (std::size_t i = 0; i < 3; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

std::string find_browser() {
  for (const char* name : {"/usr/bin/chromium-headless-shell", "/usr/bin/chromium"})
    if (fs::exists(name)) return name;
  return "";
}

std::string page_of(const Workshop& workshop, const Arguments& runs) {
  Arguments arguments = {"--out", "report.html"};
  arguments.insert(arguments.end(), runs.begin(), runs.end());
  EXPECT_EQ(workshop.run("convoy-report", arguments, {.directory = workshop.path("")}).exit_code, 0);
  return read_text(workshop.path("report.html"));
}

Json check_page(const Workshop& workshop, const std::string& page, int width) {
  const std::string script = read_text(source_path("tests/apps/report/page_checks.js"));
  const std::string found = from_base64(find_text(workshop, page, script, width, "checks"));
  return found.empty() ? Json() : Json::parse(found);
}

double font_width(const Workshop& workshop, const std::string& page) {
  const std::string width = find_text(workshop, page, R"(
    const context = document.createElement("canvas").getContext("2d");
    context.font = `100px ${getComputedStyle(document.body).fontFamily}`;
    document.body.append(make("pre", {id: "font"}, String(context.measureText("Convoy 0.123").width)));)",
                                      1280, "font");
  return std::strtod(width.c_str(), nullptr);
}

Picture take_screenshot(const Workshop& workshop, const std::string& page, const Window& window) {
  const fs::path file = workshop.path("screenshot.png");
  fs::remove(file);
  const std::string script = R"(
    const colors = document.querySelector("nav select");
    colors.value = ")" + window.theme +
                             R"(";
    colors.dispatchEvent(new Event("change"));)";
  open_page(workshop, page, script, window.width, window.height, "--screenshot=" + file.string());
  return read_picture(file);
}

Picture read_picture(const fs::path& file) {
  const Tensor image = data::decode_image(read_text(file), file.string());
  const auto* const bytes = image.view().as<std::uint8_t>();
  return {static_cast<int>(image.shape()[1]), static_cast<int>(image.shape()[0]), 3,
          std::vector<std::uint8_t>(bytes, bytes + image.numel())};
}

std::string to_palette_png(const Picture& picture) {
  const std::size_t pixels = picture.pixels.size() / 3;
  std::map<Color, std::size_t> counts;
  for (std::size_t i = 0; i < pixels; ++i) ++counts[color_at(picture, i)];
  std::vector<Color> palette;
  for (const auto& [color, count] : counts) palette.push_back(color);
  std::stable_sort(palette.begin(), palette.end(),
                   [&](const Color& a, const Color& b) { return counts[a] > counts[b]; });
  palette.resize(std::min(palette.size(), kColors));
  std::map<Color, char> nearest;
  for (const auto& [color, count] : counts) {
    const auto found = std::min_element(palette.begin(), palette.end(), [&](const Color& a, const Color& b) {
      return distance(a, color) < distance(b, color);
    });
    nearest[color] = static_cast<char>(found - palette.begin());
  }
  std::string rows, table;
  for (std::size_t i = 0; i < pixels; ++i) {
    if (i % static_cast<std::size_t>(picture.width) == 0) rows += '\0';  // no filter
    rows += nearest[color_at(picture, i)];
  }
  for (const Color& color : palette) table.append(color.begin(), color.end());
  return raw_png(static_cast<std::uint32_t>(picture.width), static_cast<std::uint32_t>(picture.height), 8, 3,
                 rows, png_chunk("PLTE", table));
}

double difference(const Picture& a, const Picture& b) {
  constexpr int kVisible = 64;  // the nearest color of a palette is closer
  if (a.width != b.width || a.height != b.height) return 1;
  const std::size_t pixels = a.pixels.size() / 3;
  std::size_t count = 0;
  for (std::size_t i = 0; i < pixels; ++i)
    count += distance(color_at(a, i), color_at(b, i)) > kVisible ? 1 : 0;
  return static_cast<double>(count) / static_cast<double>(pixels);
}

}  // namespace convoy::testing
