// Grad-CAM: where in an image a network sees a class.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convoy/models/model.h"

namespace convoy::models {

/// The result of grad_cam().
struct GradCam {
  std::string layer;        // the path of the convolution: "layer4.1.conv2"
  std::vector<int> labels;  // the class of each image
  Tensor logits;            // [N, classes], on the device of the model
  Tensor maps;  // f32 [N, h, w] of at least 0, CPU; h and w are the sizes of that convolution's output
};

/// Computes Grad-CAM (Selvaraju et al., "Grad-CAM: Visual explanations from deep networks via gradient-based
/// localization", arXiv:1610.02391) of images [N, H, W, C], normalized as the training feeds them. A is the output of
/// the network's last Conv2d with more than one pixel, and y the logit of an image's class in `labels`, or of its most
/// probable class if `labels` is empty:
///
///   weight[c] = mean over (i, j) of dy / dA[i, j, c],     map[i, j] = max(0, sum over c of weight[c] A[i, j, c])
///
/// Computes in inference mode. Leaves the gradients of the parameters unchanged, and works inside NoGrad as well. Throws
/// UsageError if the model has not one input [H, W, C] and one output [classes], if there is no such convolution or the
/// logits do not depend on it through recorded operations, if the images do not fit, or if the labels are not N of
/// 0 to classes - 1. Not thread-safe for one network.
GradCam grad_cam(const Model& model, const Tensor& images, std::span<const int> labels = {});

/// Enlarges maps, f32 [N, h, w] on the CPU, to [N, height, width] by bilinear interpolation, with pixel centers at
/// integer + 1/2 and the edge repeated beyond it. Throws UsageError for other arguments.
Tensor enlarge_maps(const Tensor& maps, std::int64_t height, std::int64_t width);

}  // namespace convoy::models
