// A vision transformer on CIFAR-10, as a network of one's own in a program with all flags of convoy-train.
//
//   vision_transformer --model vit --optimizer adamw --lr 0.001 --weight-decay 0.05 --epochs 20
//   mpirun -n 2 vision_transformer --model vit --optimizer adamw --precision bf16
#include "convoy/apps/examples/vision_transformer.h"

#include <convoy/convoy.h>

using namespace convoy;

int main(int argc, char** argv) {
  models::add({.name = "vit", .make = [](const models::Options& options) {
                 examples::VisionTransformer net({.input = options.input, .classes = options.classes});
                 return models::Model("vit", std::move(net), options.input, options.seed, options.device);
               }});
  return run_program(argc, argv);
}
