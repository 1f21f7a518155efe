#include "bench/overlap/timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace convoy::bench {
namespace {

// Pixels.
constexpr double kWidth = 900, kLeft = 130, kRight = 120, kTop = 34, kRow = 22, kPanelHead = 26,
                 kPanelFoot = 34;

constexpr const char* kInk = "#333333";
constexpr const char* kGrid = "#dddddd";
constexpr const char* kBackward = "#5a9e4b";
constexpr const char* kReady = "#24511a";
constexpr const char* kHidden = "#2a78b5";
constexpr const char* kExposed = "#c2571a";

std::string words(double x, double y, const char* anchor, const std::string& text, const char* style = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, kInk, style, text);
}

std::string box(double x, double y, double width, const char* color, const std::string& title) {
  return fmt::format(
      R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}"><title>{}</title></rect>)"
      "\n",
      x, y + 2, std::max(width, 0.4), kRow - 4, color, title);
}

/// Returns the text with XML special characters escaped.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '&') {
      out += "&amp;";
    } else if (letter == '<') {
      out += "&lt;";
    } else {
      out += letter;
    }
  }
  return out;
}

/// The time axis of a panel: converts milliseconds to pixels.
struct Axis {
  double length_ms;
  double x(double ms) const { return kLeft + (kWidth - kLeft - kRight) * ms / length_ms; }
};

std::string transfers_of(const OverlapRow& row, const Axis& axis, double backward_ms, double y) {
  std::string svg;
  for (std::size_t b = 0; b < row.exposure.transfers.size(); ++b) {
    const Transfer& transfer = row.exposure.transfers[b];
    const std::string title =
        fmt::format("bucket {}: {:.2f} MB, {:.3f} to {:.3f} ms", b + 1,
                    static_cast<double>(transfer.bytes) * 1e-6, transfer.begin_ms, transfer.end_ms);
    // A gap between adjacent transfers if they are wide enough.
    const double gap = axis.x(transfer.end_ms) - axis.x(transfer.begin_ms) > 3 ? 0.8 : 0;
    const auto piece = [&](double from_ms, double to_ms, double gap_after, const char* color) {
      if (from_ms < to_ms)
        svg += box(axis.x(from_ms), y, axis.x(to_ms) - axis.x(from_ms) - gap_after, color, title);
    };
    const bool crosses = transfer.begin_ms < backward_ms && backward_ms < transfer.end_ms;
    piece(transfer.begin_ms, std::min(transfer.end_ms, backward_ms), crosses ? 0 : gap, kHidden);
    piece(std::max(transfer.begin_ms, backward_ms), transfer.end_ms, gap, kExposed);
  }
  return svg;
}

/// Returns the panel with the rows of one link, and its height in `height`.
std::string panel(const StepRecord& record, const std::vector<const OverlapRow*>& rows, double top,
                  double& height) {
  Axis axis{record.backward_ms};
  for (const OverlapRow* row : rows)
    axis.length_ms = std::max(axis.length_ms, record.backward_ms + row->exposure.exposed_ms);
  const double first = top + kPanelHead, foot = first + kRow * static_cast<double>(rows.size() + 1);
  height = foot + kPanelFoot - top;

  std::string svg = words(kLeft, top + 17, "start", fmt::format("{} GB/s", rows.front()->link.gb_s),
                          R"( font-weight="bold")");
  for (int fifth = 0; fifth <= 5; ++fifth) {
    const double ms = axis.length_ms * fifth / 5;
    svg += fmt::format(R"(<line x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}" stroke="{3}"/>)"
                       "\n",
                       axis.x(ms), first, foot + 3, kGrid);
    svg += words(axis.x(ms), foot + 16, "middle", fmt::format("{:.4g} ms", ms));
  }
  svg += words(kLeft - 8, first + 15, "end", "backward");
  svg += box(axis.x(0), first, axis.x(record.backward_ms) - axis.x(0), kBackward, "backward");
  for (const StepRecord::Gradient& gradient : record.gradients)
    svg += box(axis.x(gradient.ready_ms), first, 0, kReady, escaped(gradient.name) + " is ready");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = first + kRow * static_cast<double>(i + 1);
    svg += words(kLeft - 8, y + 15, "end", escaped(rows[i]->plan));
    svg += transfers_of(*rows[i], axis, record.backward_ms, y);
    svg += words(kWidth - 8, y + 15, "end", fmt::format("{:.3g} ms exposed", rows[i]->exposure.exposed_ms));
  }
  svg += fmt::format(
      R"(<line x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}" stroke="{3}" stroke-dasharray="4 3"/>)"
      "\n",
      axis.x(record.backward_ms), first - 4, foot, kInk);
  return svg;
}

}  // namespace

std::string timeline_of(const StepRecord& record, const std::vector<OverlapRow>& rows) {
  std::string panels;
  double top = kTop;
  for (auto row = rows.begin(); row != rows.end() && row->sent == record.dtype;) {
    std::vector<const OverlapRow*> of_link;
    const double gb_s = row->link.gb_s;
    for (; row != rows.end() && row->sent == record.dtype && row->link.gb_s == gb_s; ++row)
      of_link.push_back(&*row);
    double height = 0;
    panels += panel(record, of_link, top, height);
    top += height;
  }
  const std::string title = fmt::format(
      "{}, batch {}, step {:.4g} ms{}: {:.1f} MB of gradients over {} ranks, {} us per transfer",
      escaped(record.model), record.batch, record.step_ms, record.is_scaled ? " (scaled)" : "",
      static_cast<double>(record.bytes()) * 1e-6, rows.front().link.ranks, rows.front().link.latency_us);
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" width="{0}" )"
                     R"(height="{1:.0f}" font-family="sans-serif" font-size="11">)"
                     "\n"
                     R"(<rect width="{0}" height="{1:.0f}" fill="white"/>)"
                     "\n",
                     kWidth, top) +
         words(kWidth / 2, 20, "middle", title) + panels + "</svg>\n";
}

}  // namespace convoy::bench
