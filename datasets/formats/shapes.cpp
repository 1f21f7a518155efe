// A generated data set of ten shapes. Color, position, size, angle and background are independent of the
// class.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/random.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
namespace {

using Color = std::array<float, 3>;  // 0 … 255

struct Point {
  float x = 0, y = 0;
};

// Each function returns whether a point is inside the figure, which fits into the unit disc.
bool in_disc(Point p) { return p.x * p.x + p.y * p.y < 0.8f; }
bool in_ring(Point p) {
  const float r2 = p.x * p.x + p.y * p.y;
  return r2 < 0.95f && r2 > 0.35f;
}
bool in_square(Point p) { return std::max(std::abs(p.x), std::abs(p.y)) < 0.7f; }
bool in_frame(Point p) {
  const float reach = std::max(std::abs(p.x), std::abs(p.y));
  return reach < 0.75f && reach > 0.42f;
}
bool in_triangle(Point p) { return p.y > -0.5f && std::abs(p.x) * std::numbers::sqrt3_v<float> + p.y < 1; }
bool in_cross(Point p) {
  const float narrow = std::min(std::abs(p.x), std::abs(p.y)), wide = std::max(std::abs(p.x), std::abs(p.y));
  return narrow < 0.25f && wide < 0.95f;
}
bool in_star(Point p) {
  // Five tips. Within each fifth of a turn, an edge is a straight line from a tip at radius 1 to a notch at
  // 0.42.
  constexpr float kFifth = 2 * std::numbers::pi_v<float> / 5;
  constexpr float kNotch = 0.42f;
  const float angle = std::abs(std::remainder(std::atan2(p.y, p.x), kFifth));  // from the nearest tip
  const float r = std::hypot(p.x, p.y);
  const float x = r * std::cos(angle), y = r * std::sin(angle);
  const float notch_x = kNotch * std::cos(kFifth / 2), notch_y = kNotch * std::sin(kFifth / 2);
  return (1 - x) * notch_y > y * (1 - notch_x);
}
bool in_crescent(Point p) {
  const float x = p.x - 0.45f;
  return p.x * p.x + p.y * p.y < 0.95f && x * x + p.y * p.y > 0.55f;
}
bool in_bars(Point p) {
  return std::abs(p.y) < 0.7f && std::abs(p.x) < 0.7f && std::abs(std::abs(p.x) - 0.35f) > 0.15f;
}
bool in_bow_tie(Point p) { return std::abs(p.x) < 0.8f && std::abs(p.y) < 0.75f * std::abs(p.x); }

struct Figure {
  const char* name;
  bool (*contains)(Point);
};
constexpr std::array<Figure, 10> kFigures = {{{"disc", in_disc},
                                              {"ring", in_ring},
                                              {"square", in_square},
                                              {"frame", in_frame},
                                              {"triangle", in_triangle},
                                              {"cross", in_cross},
                                              {"star", in_star},
                                              {"crescent", in_crescent},
                                              {"bars", in_bars},
                                              {"bow tie", in_bow_tie}}};

/// A stream of uniform random numbers for one sample.
class Draws {
 public:
  Draws(const Random& random, std::uint64_t sample) : random_(random), sample_(sample) {}

  float between(float low, float high) {
    if (next_ % 4 == 0) words_ = random_.words(sample_, next_ / 4);
    return low + (high - low) * to_uniform(words_[next_++ % 4]);
  }
  Color color() { return {between(0, 255), between(0, 255), between(0, 255)}; }

 private:
  const Random& random_;
  std::uint64_t sample_;
  std::array<std::uint32_t, 4> words_{};
  std::uint32_t next_ = 0;
};
constexpr std::uint32_t kNoiseDraws = 1024;  // the first draw for pixel noise; scenes use fewer draws

struct Stroke {
  Point from, to;
  float half_width = 0;
  Color color{};
};

constexpr float kMaxTurn = 0.35f;  // radians; larger angles are too hard for a network with two convolutions

/// The contents of one image; lengths are in pixels.
struct Scene {
  Color corner{}, across{}, down{};  // background: corner + x across + y down, x and y in 0 … 1
  Color ink{};
  Point centre;
  float radius = 0, cosine = 1, sine = 0;
  std::array<Stroke, 4> strokes{};
  float noise = 0;  // half the range of the noise that is added to each value

  Scene(Draws& draws, float size) {
    corner = draws.color();
    const Color right = draws.color(), bottom = draws.color();
    for (std::size_t c = 0; c < 3; ++c) {
      across[c] = 0.5f * (right[c] - corner[c]);
      down[c] = 0.5f * (bottom[c] - corner[c]);
    }
    radius = size * draws.between(0.28f, 0.42f);
    const float margin = 0.85f * radius;  // a figure may be cropped slightly at the image's edge
    centre = {draws.between(margin, size - margin), draws.between(margin, size - margin)};
    const float angle = draws.between(-kMaxTurn, kMaxTurn);
    cosine = std::cos(angle);
    sine = std::sin(angle);
    ink = contrasting(draws, background(centre, size));
    for (Stroke& stroke : strokes) {
      stroke.from = {draws.between(0, size), draws.between(0, size)};
      const float reach = 0.35f * size;
      stroke.to = {stroke.from.x + draws.between(-reach, reach),
                   stroke.from.y + draws.between(-reach, reach)};
      stroke.half_width = size * draws.between(0.01f, 0.03f);
      stroke.color = draws.color();
    }
    noise = draws.between(5, 30);
  }

  Color background(Point p, float size) const {
    Color color{};
    for (std::size_t c = 0; c < 3; ++c) color[c] = corner[c] + (across[c] * p.x + down[c] * p.y) / size;
    return color;
  }

 private:
  /// Returns the first of at most 16 random colors that differs enough from the background `from`. If there
  /// is none, returns black or white, whichever differs more.
  static Color contrasting(Draws& draws, const Color& from) {
    constexpr float kMin = 130;  // Euclidean distance of RGB
    for (int attempt = 0; attempt < 16; ++attempt) {
      const Color color = draws.color();
      if (std::hypot(color[0] - from[0], color[1] - from[1], color[2] - from[2]) > kMin) return color;
    }
    const float value = from[0] + from[1] + from[2] < 3 * 127.5f ? 255.0f : 0.0f;
    return {value, value, value};
  }
};

void blend(Color& color, const Color& ink, float cover) {
  for (std::size_t c = 0; c < 3; ++c) color[c] += cover * (ink[c] - color[c]);
}

/// Returns the fraction of the pixel at (x, y) that the figure covers, estimated from 4 x 4 points.
float figure_cover(const Scene& scene, const Figure& figure, float x, float y) {
  constexpr int kPoints = 4;
  if (std::hypot(x + 0.5f - scene.centre.x, y + 0.5f - scene.centre.y) > scene.radius + 1) return 0;
  int inside = 0;
  for (int i = 0; i < kPoints; ++i)
    for (int j = 0; j < kPoints; ++j) {
      const float dx = (x + (static_cast<float>(j) + 0.5f) / kPoints - scene.centre.x) / scene.radius;
      const float dy = (y + (static_cast<float>(i) + 0.5f) / kPoints - scene.centre.y) / scene.radius;
      inside +=
          figure.contains({scene.cosine * dx + scene.sine * dy, scene.cosine * dy - scene.sine * dx}) ? 1 : 0;
    }
  return static_cast<float>(inside) / (kPoints * kPoints);
}

/// Returns the fraction of the pixel at (x, y) that the stroke covers, from the distance of the pixel's
/// center.
float stroke_cover(const Stroke& stroke, float x, float y) {
  const float dx = stroke.to.x - stroke.from.x, dy = stroke.to.y - stroke.from.y;
  const float px = x + 0.5f - stroke.from.x, py = y + 0.5f - stroke.from.y;
  const float position = std::clamp((px * dx + py * dy) / std::max(dx * dx + dy * dy, 1e-6f), 0.0f, 1.0f);
  const float distance = std::hypot(px - position * dx, py - position * dy);
  return std::clamp(stroke.half_width - distance + 0.5f, 0.0f, 1.0f);
}

void draw(const Random& random, std::int64_t sample, const Figure& figure, int size, std::uint8_t* out) {
  const auto id = static_cast<std::uint64_t>(sample);
  const auto side = static_cast<float>(size);
  Draws draws(random, id);
  const Scene scene(draws, side);
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) {
      const auto px = static_cast<float>(x), py = static_cast<float>(y);
      Color color = scene.background({px, py}, side);
      // Two strokes are drawn behind the figure, two in front of it.
      for (std::size_t s = 0; s < scene.strokes.size(); ++s) {
        if (s == scene.strokes.size() / 2) blend(color, scene.ink, figure_cover(scene, figure, px, py));
        blend(color, scene.strokes[s].color, stroke_cover(scene.strokes[s], px, py));
      }
      const auto words = random.words(id, kNoiseDraws + static_cast<std::uint32_t>(y * size + x));
      for (std::size_t c = 0; c < 3; ++c) {
        const float value = color[c] + scene.noise * (2 * to_uniform(words[c]) - 1);
        *out++ = static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
      }
    }
}

ImageSet draw_set(const ShapesOptions& options, std::int64_t count, std::uint32_t split) {
  const Random random{options.seed, RandomPurpose::generated_data, split};
  const ImageSet set{allocate_images("shapes", count, options.size, options.size, 3),
                     Tensor::empty({count}, DType::i32, Device::cpu())};
  auto* images = set.images.view().as<std::uint8_t>();
  auto* labels = set.labels.view().as<std::int32_t>();
  const std::int64_t image_bytes = std::int64_t{3} * options.size * options.size;
  const CpuStream stream;
  parallel_for(stream, count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto label = static_cast<std::size_t>(i) % kFigures.size();
      labels[i] = static_cast<std::int32_t>(label);
      draw(random, i, kFigures[label], options.size, images + i * image_bytes);
    }
  });
  return set;
}

}  // namespace

DataSet generate_shapes(const ShapesOptions& options) {
  constexpr int kMinSize = 8, kMaxSize = 1024;  // pixels; figures are not recognizable below the minimum
  constexpr std::int64_t kMaxImages = std::numeric_limits<std::int32_t>::max();
  check(options.size >= kMinSize && options.size <= kMaxSize,
        "shapes: images of {} pixels, expected {} to {}", options.size, kMinSize, kMaxSize);
  check(options.train >= 1 && options.train <= kMaxImages && options.test >= 1 && options.test <= kMaxImages,
        "shapes: {} training and {} test images, expected 1 to {}", options.train, options.test, kMaxImages);
  DataSet data;
  data.name = "shapes";
  for (const Figure& figure : kFigures) data.classes.push_back(figure.name);
  data.train = draw_set(options, options.train, 0);
  data.test = draw_set(options, options.test, 1);
  data.note = fmt::format("shapes, generated from seed {}", options.seed);
  return data;
}

}  // namespace convoy::data
