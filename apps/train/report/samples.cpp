#include "convoy/apps/train/report/samples.h"

#include <algorithm>
#include <vector>

#include "convoy/datasets/formats/png_grid.h"

namespace convoy {

void write_samples(const std::filesystem::path& path, const data::ImageSet& train,
                   data::LoaderOptions options) {
  constexpr std::int64_t kSide = 8;  // images per side of the grid
  options.global_batch = std::min(kSide * kSide, train.size());
  options.micro_batch = 0;
  options.workers = 0;
  options.dtype = DType::f32;
  data::DataLoader loader(train, options);
  const Tensor images = loader.next_step().front().images;
  std::vector<float> values = images.to_vector<float>();
  const auto channels = static_cast<std::size_t>(images.size(3));
  const kernels::AugmentOptions& augment = options.transform.augment;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = values[i] / augment.inverse_std[i % channels] + augment.mean[i % channels];
  data::write_png_grid(path, Tensor::from(values, images.shape(), Device::cpu()), kSide);
}

}  // namespace convoy
