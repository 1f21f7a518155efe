#include "convoy/apps/train/augmentation/augmentation_options.h"

#include "convoy/kernels/base/check.h"

namespace convoy {

void add_augmentation_flags(CommandLine& line, AugmentationOptions& options) {
  line.add("randaugment", &options.randaugment,
           "RandAugment: none, or the number of operations per image and their magnitude, from 0 to 30",
           {.value = "N,M", .fixed = true, .advanced = true});
  line.add("random-erasing", &options.random_erasing,
           "Probability that a random box of an image is set to the mean color",
           {.value = "P", .minimum = 0, .maximum = 1, .fixed = true, .advanced = true});
  line.add("mixup", &options.mixup, "Parameter of mixup's distribution Beta(ALPHA, ALPHA); 0: no mixup",
           {.value = "ALPHA", .minimum = 0, .maximum = 1000, .fixed = true, .advanced = true});
  line.add(
      "cutmix", &options.cutmix,
      "Parameter of CutMix's distribution Beta(ALPHA, ALPHA), with --mixup in half of the steps; 0: no CutMix",
      {.value = "ALPHA", .minimum = 0, .maximum = 1000, .fixed = true, .advanced = true});
}

void resolve_augmentation(const AugmentationOptions& options, ComputeOptions& compute) {
  if (options.randaugment != "none" && !compute.data_on_device) compute.data_on_device = false;
}

void check_augmentation(const AugmentationOptions& options, const ComputeOptions& compute, double hardest,
                        bool overfit_batch) {
  const bool is_random = data::parse_rand_augment(options.randaugment).enabled();
  check(!is_random || !compute.data_on_device.value_or(false),
        "--randaugment {}: found --data-on-device, expected --no-data-on-device: the CPU computes it",
        options.randaugment);
  check(!is_random || !overfit_batch, "--randaugment {}: found --overfit-batch, expected none",
        options.randaugment);
  const std::pair<const char*, double> flags[] = {
      {"mixup", options.mixup}, {"cutmix", options.cutmix}, {"random-erasing", options.random_erasing}};
  for (const auto& [name, value] : flags)
    check(value == 0 || !overfit_batch, "--{} {}: found --overfit-batch, expected 0", name, value);
  check(!options.mixes_labels() || hardest == 1,
        "--{} {}: found --hardest {}, which compares the losses of single labels; expected --hardest 1",
        options.mixup > 0 ? "mixup" : "cutmix", options.mixup > 0 ? options.mixup : options.cutmix, hardest);
}

void apply_augmentation(const AugmentationOptions& options, data::TransformSpec& transform) {
  transform.rand_augment = data::parse_rand_augment(options.randaugment);
  transform.augment.random_erasing = static_cast<float>(options.random_erasing);
  transform.mixing = {.mixup = options.mixup, .cutmix = options.cutmix};
}

}  // namespace convoy
