#include "convoy/kernels/runtime/device.h"

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy {

Device Device::best(int local_rank) { return cuda_availability().count > 0 ? cuda(local_rank) : cpu(); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "auto") return best();
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    if (!digits.empty() && digits.size() <= 4 &&
        digits.find_first_not_of("0123456789") == std::string_view::npos)
      return cuda(std::stoi(std::string(digits)));
  }
  fail_option("Device::parse", "found '{}', expected auto, cpu, cuda or cuda:N", text);
}

std::string Device::name() const {
  if (kind == DeviceKind::cuda) return fmt::format("cuda:{}", index);
  return kind == DeviceKind::cpu ? "cpu" : "meta";
}

}  // namespace convoy
