// Python programs read what the programs write: NumPy logits, ONNX Runtime exported networks, and torchvision weights.
// Runs with `ctest -L soak` only, and skips what is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/find_python.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string directory_of_programs() { return fs::path(program("convoy-train")).parent_path(); }

TEST(PythonReaders, NumpyReadsLogits) {
  const std::string modules = "numpy", python = find_python(modules);
  if (python.empty()) GTEST_SKIP() << no_python(modules);
  const Workshop workshop;
  for (const std::string precision : {"fp32", "fp64"}) {
    const std::string run = workshop.path(precision), npy = workshop.path("logits.npy");
    ASSERT_EQ(workshop.train(precision, {"--precision", precision}).exit_code, 0);
    const Json expected = workshop.evaluated(run, {"--data", workshop.path("digits"), "--logits", npy});
    const ProcessResult read = run_program({python, "-c", R"(
import json, sys, numpy
logits = numpy.load(sys.argv[1])
labels = numpy.fromfile(sys.argv[2], numpy.uint8, offset=8)
shifted = logits.astype(float) - logits.max(axis=1, keepdims=True)
losses = numpy.log(numpy.exp(shifted).sum(axis=1)) - shifted[numpy.arange(len(labels)), labels]
print(json.dumps({"dtype": str(logits.dtype), "shape": logits.shape, "fortran": bool(logits.flags.f_contiguous),
                  "accuracy": float((logits.argmax(axis=1) == labels).mean()), "loss": float(losses.mean())}))
)",
                                            npy, workshop.path("digits/t10k-labels-idx1-ubyte")});
    ASSERT_EQ(read.exit_code, 0) << read.err;
    const Json found = Json::parse(read.out);
    EXPECT_EQ(found["dtype"], precision == "fp32" ? "float32" : "float64");
    EXPECT_EQ(found["shape"], Json({100, 10}));
    EXPECT_EQ(found["fortran"], false);
    EXPECT_EQ(found["accuracy"], expected["accuracy"]);
    // The mean of 100 losses in f32, each a few roundings of numbers of at most about 10.
    EXPECT_NEAR(found["loss"].get<double>(), expected["loss"].get<double>(), 1e-5);
  }
}

TEST(PythonReaders, OnnxRuntimeComputesTheSamePredictions) {
  const std::string modules = "numpy, onnx, onnxruntime", python = find_python(modules);
  if (python.empty()) GTEST_SKIP() << no_python(modules);
  const Workshop workshop;
  write_digits(workshop.path("data/MNIST/raw"));
  ASSERT_EQ(workshop.train("run").exit_code, 0);
  const Arguments check = {python,
                           "-B",
                           source_path("scripts/check_onnx.py"),
                           "--bin",
                           directory_of_programs(),
                           "--checkpoint",
                           workshop.path("run"),
                           "--data"};
  const auto check_on = [&](const std::string& data) {
    Arguments arguments = check;
    arguments.push_back(workshop.path(data));
    return run_program(arguments);
  };
  EXPECT_THAT(check_on("data"), Prints(::testing::AllOf(HasSubstr("lenet, opset 17: 100 images"),
                                                        HasSubstr("100 predictions agree"))));
  EXPECT_EQ(check_on("digits").exit_code, 1) << "no data set that it can read";
}

TEST(PythonReaders, TorchvisionReadsAndWritesWeights) {
  const std::string modules = "numpy, torch, torchvision, PIL, safetensors", python = find_python(modules);
  if (python.empty()) GTEST_SKIP() << no_python(modules);
  for (const char* stem : {"cifar", "imagenet"}) {
    EXPECT_THAT(run_program({python, "-B", source_path("scripts/check_torchvision.py"), "--bin",
                             directory_of_programs(), "--model", "resnet18", "--stem", stem}),
                Prints(::testing::AllOf(HasSubstr("Convoy to torchvision: logits of 8 images agree"),
                                        HasSubstr("torchvision to Convoy: logits of 8 images agree"))));
  }
}

}  // namespace
}  // namespace convoy::testing
