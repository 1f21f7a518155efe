// The programs as functions, for a program of one's own. It has all flags of convoy-train, and knows the
// models and data sets that models::add() and data::add() have added:
//
//   int main(int argc, char** argv) {
//     convoy::models::add({.name = "mine", .make = make_mine});
//     return convoy::run_program(argc, argv);
//   }
//
// apps/examples/custom_program.cpp is a complete one. Not thread-safe: call these functions on the main
// thread.
#pragma once

#include <string>
#include <vector>

#include "convoy/datasets/formats/registry.h"
#include "convoy/engine/training/callback.h"
#include "convoy/models/models.h"

namespace convoy {

/// Runs convoy-train and returns its exit code. If the first argument is "evaluate", "predict" or "export",
/// runs convoy-evaluate, convoy-predict or convoy-export with the others, so that they know the models that
/// were added. Prints errors, as one line on stderr. Calls `callbacks` on rank 0, after the program's own.
int run_program(int argc, char** argv, const std::vector<training::Callback*>& callbacks = {});

/// Runs convoy-train and returns its exit code. Errors and help begin with `name`. Calls `callbacks` as
/// run_program() does.
int run_train_program(const std::string& name, int argc, char** argv,
                      const std::vector<training::Callback*>& callbacks = {});
/// Runs convoy-evaluate and returns its exit code. Errors and help begin with `name`.
int run_evaluate_program(const std::string& name, int argc, char** argv);
/// Runs convoy-predict and returns its exit code. Errors and help begin with `name`.
int run_predict_program(const std::string& name, int argc, char** argv);
/// Runs convoy-export and returns its exit code. Errors and help begin with `name`.
int run_export_program(const std::string& name, int argc, char** argv);
/// Runs convoy-shard and returns its exit code. Errors and help begin with `name`.
int run_shard_program(const std::string& name, int argc, char** argv);

}  // namespace convoy
