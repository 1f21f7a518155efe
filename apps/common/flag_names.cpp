#include "convoy/apps/common/flag_names.h"

#include <array>
#include <string_view>

namespace convoy {

std::span<const FlagName> flag_names() {
  static constexpr std::array kNames = {
      FlagName{"LoaderOptions::global_batch", "--batch-size"},
      FlagName{"LoaderOptions::micro_batch", "--micro-batch-size"},
      FlagName{"LoaderOptions::workers", "--workers"},
      FlagName{"LoaderOptions::max_epochs", "--epochs"},
      FlagName{"ReadOptions::workers", "--workers"},
      FlagName{"ReadOptions::image_size", "--image-size"},
      FlagName{"ReadOptions::skip_corrupt", "--skip-corrupt"},
      FlagName{"AugmentOptions", "--augment"},
      FlagName{"Device::parse", "--device"},
      FlagName{"RendezvousOptions::init_method", "--rendezvous"},
      FlagName{"use the CPU, or", "use --device cpu, or"},
      FlagName{"set allow_shared_gpu", "add --allow-shared-gpu"},
      FlagName{"use smaller batches", "lower --batch-size or --micro-batch-size"},
  };
  return kNames;
}

std::string with_flag_names(std::string message) {
  for (const auto& [library, flag] : flag_names()) {
    for (std::size_t at = 0; (at = message.find(library, at)) != std::string::npos;) {
      message.replace(at, std::string_view(library).size(), flag);
      at += std::string_view(flag).size();
    }
  }
  return message;
}

}  // namespace convoy
