#include "convoy/apps/train/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kBarWidth = 24;

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Returns a bar of which `share`, 0 to 1, is full.
std::string bar(double share) {
  const auto full = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  return fmt::format("[{:<{}}]", std::string(full, '='), kBarWidth);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string fit_line(std::vector<LinePart> parts, std::size_t columns) {
  while (true) {
    std::string line;
    for (const LinePart& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    const auto last = std::max_element(
        parts.begin(), parts.end(), [](const LinePart& a, const LinePart& b) { return a.leaves < b.leaves; });
    if (line.size() <= columns || last == parts.end() || last->leaves == 0) return line;
    parts.erase(last);
  }
}

Progress::Progress(const ProgressOptions& options)
    : options_(options),
      time_left_(options.plan),
      terminal_(options.may_redraw && isatty(STDOUT_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::step(const StepReport& report) {
  const Clock::time_point now = Clock::now();
  time_left_.step(report.step, now);
  if (report.measured) last_ = *report.measured;
  if (options_.quiet) return;
  if (!terminal_) {
    if (report.measured) line(fit_line(describe(report), std::string::npos));
    return;
  }
  if (now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  std::vector<LinePart> parts = describe(report);
  const double share = static_cast<double>(report.step) / static_cast<double>(options_.plan.total_steps);
  parts.insert(parts.begin(), {LinePart{bar(share), 7}, LinePart{fmt::format("{:.0f}%", share * 100), 1}});
  draw(fit_line(std::move(parts), terminal_width() - 1));
}

void Progress::evaluating(std::int64_t done, std::int64_t count) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || options_.quiet || now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  draw(fmt::format("evaluating {}/{}", done, count));
}

void Progress::evaluated(double accuracy, const std::string& text) {
  time_left_.evaluated(Clock::now());
  accuracy_ = accuracy;
  note(text);
}

void Progress::line(const std::string& text) {
  clear();
  fmt::print("{}\n", without_control_characters(text));
  std::fflush(stdout);
}

std::vector<LinePart> Progress::describe(const StepReport& report) const {
  const double epochs = static_cast<double>(report.step) / static_cast<double>(options_.steps_per_epoch);
  std::vector<LinePart> parts = {{fmt::format("step {}/{}", report.step, options_.plan.total_steps)},
                                 {fmt::format("epoch {:.2f}", epochs), 5},
                                 {fmt::format("lr {:.4g}", report.lr), 6}};
  if (last_.step_ms > 0) {
    parts.push_back({fmt::format("loss {:.4f}", last_.loss)});
    parts.push_back({fmt::format("average {:.4f}", last_.average_loss), 3});
    parts.push_back({fmt::format("{:.0f} images/s", last_.images_per_second)});
    parts.push_back({fmt::format("data {:.1f} ms", last_.data_ms), 4});
  }
  if (const auto seconds = time_left_.seconds())
    parts.push_back({fmt::format("left {}", format_duration(*seconds))});
  if (accuracy_ >= 0 && terminal_) parts.push_back({fmt::format("test {:.2f}%", accuracy_ * 100), 2});
  return parts;
}

void Progress::draw(const std::string& text) {
  fmt::print("\r{}\x1b[K", text.substr(0, terminal_width() - 1));
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print("\r\x1b[K");
  std::fflush(stdout);
  drawn_ = false;
}

void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  for (const auto& [name, value] : rows)
    fmt::print("  {:<{}}  {}\n", name, width, without_control_characters(value));
  std::fflush(stdout);
}

}  // namespace convoy
