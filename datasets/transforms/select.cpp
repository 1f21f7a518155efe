// select() of dataset.h: images of a source are resized to their shape in batches.
#include "convoy/datasets/dataset.h"
#include "convoy/datasets/transforms/resize.h"

namespace convoy::data {

ImageSet select(const ImageSet& set, const std::vector<std::int32_t>& rows) {
  const auto count = std::ssize(rows);
  const Shape& all = set.shape();
  const DeviceContext device = set.source ? DeviceContext(Device::cpu()) : set.images.context();
  ImageSet selected{Tensor::empty({count, all[1], all[2], all[3]}, DType::u8, device),
                    Tensor::empty({count}, DType::i32, device)};
  selected.decode = set.decode;
  SquareResizer resizer(all[2]);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = rows[static_cast<std::size_t>(i)];
    if (set.source) {
      resizer.run(set.original(from, all[2]), all[1], all[2],
                  selected.images.rows(i, i + 1).view().as<std::uint8_t>());
      selected.labels.view().as<std::int32_t>()[i] = set.source->label(from);
      continue;
    }
    selected.images.rows(i, i + 1).copy_from(set.images.rows(from, from + 1));
    selected.labels.rows(i, i + 1).copy_from(set.labels.rows(from, from + 1));
    if (!set.files.empty()) selected.files.push_back(set.files[static_cast<std::size_t>(from)]);
  }
  return selected;
}

}  // namespace convoy::data
