#include "convoy/apps/train/report/evaluation_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convoy/datasets/formats/png_grid.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

using Json = nlohmann::ordered_json;

Json mistakes_to_json(const std::vector<Mistake>& mistakes) {
  Json list = Json::array();
  for (const Mistake& mistake : mistakes) {
    list.push_back({{"image", mistake.image},
                    {"label", mistake.label},
                    {"prediction", mistake.prediction},
                    {"probability", mistake.probability}});
    if (!mistake.file.empty()) list.back()["file"] = mistake.file;
  }
  return list;
}

/// Returns u8 images as f32 with values from 0 to 1.
Tensor to_unit_range(const Tensor& images) {
  const std::vector<std::uint8_t> pixels = images.to_vector<std::uint8_t>();
  std::vector<float> values(pixels.begin(), pixels.end());
  for (float& value : values) value /= 255;
  return Tensor::from(values, images.shape(), Device::cpu());
}

}  // namespace

void write_evaluation(const std::filesystem::path& directory, std::int64_t step, const Evaluation& evaluation,
                      const std::vector<std::string>& classes) {
  std::error_code ignored;  // a file that cannot be written is the error
  std::filesystem::create_directories(directory, ignored);
  const std::filesystem::path picture = directory / "mistakes.png";
  if (evaluation.mistakes.empty())
    std::filesystem::remove(picture, ignored);
  else
    data::write_png_grid(picture, to_unit_range(evaluation.mistake_images), kMistakesPerRow);
  const Json json{{"step", step},
                  {"count", evaluation.count},
                  {"loss", evaluation.loss},
                  {"accuracy", evaluation.accuracy},
                  {"classes", classes},
                  {"images", evaluation.images},
                  {"correct", evaluation.correct},
                  {"confusion", evaluation.confusion_rows()},
                  {"mistakes", mistakes_to_json(evaluation.mistakes)},
                  {"mistakes_per_row", kMistakesPerRow}};
  io::write_file_atomically(directory / "evaluation.json", json_text(json) + "\n");
}

void write_samples(const std::filesystem::path& path, const data::ImageSet& train,
                   const std::vector<std::string>& classes, data::LoaderOptions options) {
  constexpr std::int64_t kSide = 8;             // images per row of the grid
  constexpr std::int64_t kMaxPixels = 1 << 20;  // the report contains the picture
  const std::int64_t row = kSide * train.shape()[1] * train.shape()[2];
  options.global_batch = std::min(kSide * std::clamp<std::int64_t>(kMaxPixels / row, 1, kSide), train.size());
  options.micro_batch = 0;
  options.workers = 0;
  options.dtype = DType::f32;
  data::DataLoader loader(train, options);
  const data::Batch batch = loader.next_step().front();
  const Tensor& images = batch.images;
  std::vector<std::string> names;
  for (const std::int32_t label : batch.labels.to_vector<std::int32_t>())
    names.push_back(classes.at(static_cast<std::size_t>(label)));
  std::vector<float> values = images.to_vector<float>();
  const auto channels = static_cast<std::size_t>(images.size(3));
  const kernels::AugmentOptions& augment = options.transform.augment;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = values[i] / augment.inverse_std[i % channels] + augment.mean[i % channels];
  data::write_png_grid(path, Tensor::from(values, images.shape(), Device::cpu()), kSide, names);
}

}  // namespace convoy
