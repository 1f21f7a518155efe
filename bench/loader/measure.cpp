#include "bench/loader/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "bench/common/results.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

double core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Measures wall time and CPU time since its construction.
class Watch {
 public:
  LoaderTime stop(std::int64_t images) const {
    return {.images = images,
            .seconds = std::chrono::duration<double>(Clock::now() - begin_).count(),
            .core_seconds = core_seconds() - core_begin_};
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
  double core_begin_ = core_seconds();
};

LoaderTime run_epoch(data::DataLoader& loader, std::int64_t images) {
  const Watch watch;
  std::int64_t found = 0;
  for (std::vector<data::Batch> step = loader.next_step(); !step.empty(); step = loader.next_step())
    for (const data::Batch& batch : step) found += batch.images.size(0);
  check(found == images, "an epoch: found {} images, expected {}", found, images);
  return watch.stop(images);
}

Spread rates_of(const std::vector<LoaderTime>& times, double LoaderTime::*seconds) {
  std::vector<double> rates;
  for (const LoaderTime& time : times) rates.push_back(static_cast<double>(time.images) / time.*seconds);
  return spread_of(rates);
}

}  // namespace

LoaderTime LoaderFigures::first_epoch() const {
  const LoaderTime& first = epochs.front();
  const double fraction = static_cast<double>(first.images) / static_cast<double>(reading.images);
  return {.images = first.images,
          .seconds = fraction * reading.seconds + first.seconds,
          .core_seconds = fraction * reading.core_seconds + first.core_seconds};
}

LoaderFigures measure_loader(const LoaderBenchOptions& options) {
  const DataLocation location = locate_data(options.data);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const Watch watch;
  const data::DataSet data = read_data(location, options.data, seed);
  data::TransformSpec transform =
      data::make_transform(options.augment, data::channel_statistics(data.train), {.natural_images = true});
  apply_augmentation(options.augmentation, transform);
  LoaderFigures figures{.note = data.note,
                        .image = {},
                        .transform = transform.describe(),
                        .reading = watch.stop(data.train.size() + data.test.size()),
                        .epochs = {}};
  const Shape shape = data.image_shape();
  for (int i = 0; i < shape.rank(); ++i) figures.image.push_back(shape[i]);
  data::DataLoader loader(data.train, {.global_batch = options.batch_size,
                                       .seed = seed,
                                       .transform = transform,
                                       .workers = static_cast<int>(options.data.workers),
                                       .max_epochs = options.epochs});
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch)
    figures.epochs.push_back(run_epoch(loader, data.train.size()));
  return figures;
}

Json to_json(const LoaderTime& time) {
  const auto images = static_cast<double>(time.images);
  return {{"images", time.images},
          {"seconds", time.seconds},
          {"core_seconds", time.core_seconds},
          {"images_per_second", images / time.seconds},
          {"images_per_core_second", images / time.core_seconds}};
}

Json to_json(const LoaderFigures& figures) {
  Json epochs = Json::array();
  for (const LoaderTime& time : figures.epochs) epochs.push_back(to_json(time));
  return {{"data", figures.note},
          {"image", figures.image},
          {"transform", figures.transform},
          {"reading", to_json(figures.reading)},
          {"first_epoch", to_json(figures.first_epoch())},
          {"images_per_second", to_json(rates_of(figures.epochs, &LoaderTime::seconds))},
          {"images_per_core_second", to_json(rates_of(figures.epochs, &LoaderTime::core_seconds))},
          {"epochs", epochs}};
}

}  // namespace convoy::bench
