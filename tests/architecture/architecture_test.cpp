// The whole tree keeps the rules, and each rule finds a planted breach: a check that cannot fail protects
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/architecture/source_rules.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::architecture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<SourceFile>& tree() {
  static const std::vector<SourceFile> files = read_tree(testing::source_path());
  return files;
}

TEST(Architecture, TheTreeIsFound) { EXPECT_GT(tree().size(), 50U); }
TEST(Architecture, IncludesFollowTheArrows) { EXPECT_THAT(check_arrows(tree()), IsEmpty()); }
TEST(Architecture, TheCoreKnowsNoCluster) { EXPECT_THAT(check_core(tree()), IsEmpty()); }
TEST(Architecture, ConditionalsStayInTheRuntime) { EXPECT_THAT(check_conditionals(tree()), IsEmpty()); }
TEST(Architecture, MessagesOfTheLibraryNameNoFlags) {
  EXPECT_THAT(check_flags_in_messages(tree()), IsEmpty());
}
TEST(Architecture, JsonIsWrittenByOneFunction) { EXPECT_THAT(check_json_texts(tree()), IsEmpty()); }
TEST(Architecture, TheUmbrellaHeaderHasEveryPublicHeader) {
  std::ifstream stream(testing::source_path() / "cmake/package/convoy.h");
  std::vector<SourceFile> files = tree();
  files.push_back(
      {.path = "cmake/package/convoy.h", .text = std::string(std::istreambuf_iterator<char>(stream), {})});
  EXPECT_THAT(check_public_headers(files), IsEmpty());
}
TEST(Architecture, DeviceSourcesKeepApart) { EXPECT_THAT(check_device_sources(tree()), IsEmpty()); }
TEST(Architecture, SourcesAreListed) { EXPECT_THAT(check_build_lists(tree()), IsEmpty()); }

TEST(ArchitectureRules, FindAnIncludeAgainstTheArrows) {
  const std::vector<SourceFile> files = {
      {"engine/tensor/tensor.h", "#pragma once\n# include \"convoy/engine/nn/module.h\"\n"},
      {"engine/nn/module.h",
       "#include \"convoy/engine/tensor/tensor.h\"\n#include \"convoy/kernels/base/view.h\"\n"},
      {"kernels/base/view.h", "#include <vector>\n"},
      {"models/model.h", "#include \"convoy/datasets/dataset.h\"\n"},
      {"datasets/dataset.h", "#include \"dataset_state.h\"\n#include \"engine/tensor/tensor.h\"\n"},
      {"attic/old.h", ""},
  };
  EXPECT_THAT(
      check_arrows(files),
      ElementsAre(
          "engine/tensor/tensor.h:2: includes engine/nn/module.h, which engine/tensor may not see",
          "models/model.h:1: includes datasets/dataset.h, which models may not see",
          "datasets/dataset.h:1: includes dataset_state.h, expected convoy/ and the path of a library's header, "
          "or the path of another file from the root",
          "datasets/dataset.h:2: includes engine/tensor/tensor.h, expected convoy/ and the path of a library's "
          "header, or the path of another file from the root",
          "attic/old.h: attic has no row in the table of arrows"));
}

TEST(ArchitectureRules, FindACoreThatLinksTheCluster) {
  EXPECT_THAT(check_core({{"comm/CMakeLists.txt",
                           "# cluster\ntarget_link_libraries(convoy_comm PUBLIC convoy_cluster)\n"}}),
              ElementsAre("comm/CMakeLists.txt:2: convoy_comm must not know the component cluster"));
}

TEST(ArchitectureRules, FindACommunicatorThatSeesTheEngine) {
  const std::vector<SourceFile> files = {
      {"comm/transport/shm/shm_communicator.cpp", "#include \"convoy/engine/nn/module.h\"\n"},
      {"comm/parallel/gradient_synchronizer.h", "#include \"convoy/engine/nn/module.h\"\n"},
      {"bench/kernels/op_run.h",
       "#include \"tests/testing/support/gpu.h\"\n#include \"tests/testing/op_cases/op_case.h\"\n"},
      {"apps/train/main.cpp", "#include \"convoy/apps/train/report/reporter.h\"\n"},
      {"apps/train/trainer.h", "#include \"convoy/apps/train/report/reporter.h\"\n"},
      {"apps/train/report/reporter.h", ""},
      {"engine/nn/module.h", ""},
      {"tests/testing/support/gpu.h", ""},
      {"tests/testing/op_cases/op_case.h", ""},
  };
  EXPECT_THAT(
      check_arrows(files),
      ElementsAre(
          "comm/transport/shm/shm_communicator.cpp:1: includes engine/nn/module.h, which comm/transport/shm may not see",
          "bench/kernels/op_run.h:1: includes tests/testing/support/gpu.h, which bench/kernels may not see",
          "apps/train/trainer.h:1: includes apps/train/report/reporter.h, which apps/train may not see"));
}

TEST(ArchitectureRules, FindConditionals) {
  const std::vector<SourceFile> files = {
      {"engine/ops/linear.cpp", "int a;\n  # ifdef CONVOY_CUDA\n#endif\n// #if 0\n"},
      {"kernels/runtime/stream.h", "#if defined(CONVOY_CUDA)\n#endif\n"}};
  EXPECT_THAT(check_conditionals(files),
              ElementsAre("engine/ops/linear.cpp:2: conditional compilation belongs in kernels/runtime"));
}

TEST(ArchitectureRules, FindAFlagInAMessageOfTheLibrary) {
  const std::vector<SourceFile> files = {
      {"datasets/loader/loader.cpp", "int a;\nfail(\"lower --batch-size\");\n"},
      {"comm/core/deadline.cpp", "--left;  // \"a\" -- b\n"},
      {"apps/train/main.cpp", "fail(\"lower --batch-size\");\n"}};
  EXPECT_THAT(check_flags_in_messages(files),
              ElementsAre(HasSubstr("datasets/loader/loader.cpp:2: the library names a flag of a program in "
                                    "\"lower --batch-size\"")));
}

TEST(ArchitectureRules, FindJsonThatRefusesNames) {
  EXPECT_THAT(check_json_texts({{"apps/programs/a.cpp", "int a;\nwrite(json.dump(2));  // .dump(1)\n"},
                                {"comm/b.cpp", "dump(); json_text(json);\n"},
                                {"tests/b.cpp", "json.dump();\n"}}),
              ElementsAre(HasSubstr("apps/programs/a.cpp:2: dump() throws for names")));
}

TEST(ArchitectureRules, FindAPublicHeaderThatIsNotInTheUmbrella) {
  EXPECT_THAT(check_public_headers({{"cmake/package/convoy.h", "#include \"convoy/engine/io/file.h\"\n"},
                                    {"engine/io/file.h", "#include \"convoy/engine/io/lock.h\"\n"},
                                    {"engine/io/lock.h", ""},
                                    {"engine/ops/detail.h", ""},
                                    {"engine/optim/average.h", ""}}),
              ElementsAre("engine/optim/average.h: public, but not in convoy/convoy.h"));
}

TEST(ArchitectureRules, FindKernelsAndFmtWhereTheyDoNotBelong) {
  const std::string kernel = std::string("__") + "global__ void k();\n";
  const std::vector<SourceFile> files = {
      {"engine/ops/ops.h", kernel},
      {"kernels/cuda/reduce.cu", "#include \"convoy/kernels/reduce.h\"\n" + kernel},
      {"kernels/reduce.h", "#include \"convoy/kernels/base/check.h\"\n"},
      {"kernels/base/check.h", "#include <fmt/format.h>\n"},
  };
  EXPECT_THAT(
      check_device_sources(files),
      ElementsAre("engine/ops/ops.h:1: a kernel outside kernels/cuda",
                  "kernels/cuda/reduce.cu: fmt does not compile in device sources: kernels/cuda/reduce.cu -> "
                  "kernels/reduce.h -> kernels/base/check.h -> fmt/format.h"));
}

TEST(ArchitectureRules, FindWhatAnEmulatorCannotFollow) {
  const std::string shared = std::string("__") + "shared__ float tile[32];\n";
  const std::string launch = std::string("kernel<") + "<<1, 32>>>();\n";
  const std::vector<SourceFile> files = {
      {"kernels/cuda/reduce.cu", "// " + shared + shared + launch},
      {"kernels/cuda/primitives/launch.h", "extern " + shared},
      {"emulator/include/cuda_runtime.h", "#define " + shared},
  };
  EXPECT_THAT(
      check_device_sources(files),
      ElementsAre(
          "kernels/cuda/reduce.cu:2: shared memory comes from shared_memory() of "
          "kernels/cuda/primitives/launch.h",
          "kernels/cuda/reduce.cu:3: kernels are launched by launch() of kernels/cuda/primitives/launch.h"));
}

TEST(ArchitectureRules, FindUnbuiltSources) {
  const std::vector<SourceFile> files = {
      {"engine/CMakeLists.txt",
       "add_library(e\n  ops/a.cpp\n  # ops/b.cpp\n  ops/gone.cpp)\nfile( GLOB more *.cpp)"},
      {"engine/ops/a.cpp", ""},
      {"engine/ops/b.cpp", ""},
  };
  EXPECT_THAT(check_build_lists(files),
              ElementsAre("engine/CMakeLists.txt: globs its sources",
                          "engine/CMakeLists.txt: lists engine/ops/gone.cpp, which does not exist",
                          "engine/ops/b.cpp: no CMakeLists.txt lists it"));
}

}  // namespace
}  // namespace convoy::architecture
