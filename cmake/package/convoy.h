// Convoy: all public headers. A program that uses only some of the libraries may include this header as well;
// it links only what it calls. The list is also the guide to the headers, in the order in which to read them.
//
// Threads: structs of options and results are values. Where a comment says nothing else, one thread at a time
// uses an object.
#pragma once

#include "convoy/version.h"

/// Devices, tensors, variables, ops and the programs. All else is in one namespace per library.
namespace convoy {}
/// Modules: layers and containers of them.
namespace convoy::nn {}
/// Optimizers, learning-rate schedules and loss scaling.
namespace convoy::optim {}
/// Files: checkpoints, safetensors and ONNX.
namespace convoy::io {}
/// Callbacks of a training: losses, times, checkpoints and early stopping.
namespace convoy::training {}
/// Networks with a name, built for inputs of given shapes.
namespace convoy::models {}
/// Data sets, transforms and loaders.
namespace convoy::data {}
/// Ranks: rendezvous, communicators and data-parallel training.
namespace convoy::dist {}
/// The kernels that ops call, and their options.
namespace convoy::kernels {}

// Errors, element types, shapes and devices
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/parallel.h"

// Tensors, automatic differentiation and ops
#include "convoy/engine/autograd/activation_checkpoint.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/autograd/check_gradients.h"
#include "convoy/engine/autograd/variable.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/tensor/tensor.h"

// Networks, optimizers, checkpoints, profiles and callbacks
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/onnx.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/nn/module.h"
#include "convoy/engine/optim/loss_average.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/optim/muon.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/optim/schedule.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/engine/profile/profiler.h"
#include "convoy/engine/training/callback.h"

// Models and data
#include "convoy/datasets/dataset.h"
#include "convoy/datasets/download/download.h"
#include "convoy/datasets/formats/png_grid.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/datasets/shards/shard_writer.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/models/grad_cam.h"
#include "convoy/models/models.h"

// The programs, with models and data sets of one's own
#include "convoy/apps/programs/programs.h"

// Ranks: rendezvous, communicators and data-parallel training
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/consistency.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/parallel/sync_batch_norm.h"
#include "convoy/comm/parallel/zero/sharded_optimizer.h"
#include "convoy/comm/transport/cpu_communicator.h"
