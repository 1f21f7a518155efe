#include "convoy/apps/programs/programs.h"

#include <filesystem>
#include <string_view>

namespace convoy {

int run_program(int argc, char** argv, const std::vector<training::Callback*>& callbacks) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "evaluate") return run_evaluate_program(name + " evaluate", argc - 1, argv + 1);
  if (command == "predict") return run_predict_program(name + " predict", argc - 1, argv + 1);
  if (command == "export") return run_export_program(name + " export", argc - 1, argv + 1);
  return run_train_program(name, argc, argv, callbacks);
}

}  // namespace convoy
