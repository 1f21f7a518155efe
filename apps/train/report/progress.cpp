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

Progress::Progress(std::int64_t total_steps, std::int64_t steps_per_epoch, bool may_redraw)
    : terminal_(may_redraw && isatty(STDOUT_FILENO) != 0), total_(total_steps), per_epoch_(steps_per_epoch) {}

Progress::~Progress() { clear(); }

void Progress::step(const StepReport& report) {
  if (report.measured) last_ = *report.measured;
  if (!terminal_) {
    if (report.measured) line(describe(report));
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  const double share = static_cast<double>(report.step) / static_cast<double>(total_);
  draw(fmt::format("{} {:3.0f}%  {}", bar(share), share * 100, describe(report)));
}

void Progress::evaluating(std::int64_t done, std::int64_t count) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  draw(fmt::format("evaluating {}/{}", done, count));
}

void Progress::line(const std::string& text) {
  clear();
  fmt::print("{}\n", without_control_characters(text));
  std::fflush(stdout);
}

std::string Progress::describe(const StepReport& report) const {
  const double epochs = static_cast<double>(report.step) / static_cast<double>(per_epoch_);
  std::string text =
      fmt::format("step {}/{}  epoch {:.2f}  lr {:.4g}", report.step, total_, epochs, report.lr);
  if (last_.step_ms > 0)
    text += fmt::format("  loss {:.4f} (average {:.4f})  {:.0f} images/s  data {:.1f} ms  ETA {}", last_.loss,
                        last_.average_loss, last_.images_per_second, last_.data_ms,
                        format_duration(remaining_seconds(report.step)));
  if (accuracy_ >= 0 && terminal_) text += fmt::format("  test {:.2f}%", accuracy_ * 100);
  return text;
}

double Progress::remaining_seconds(std::int64_t step) const {
  return static_cast<double>(total_ - step) * last_.step_ms / 1e3;
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
