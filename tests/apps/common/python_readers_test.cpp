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

// A product of K terms in f32 in another order differs by about 2^-24 sqrt(K) of its size; the transformer has 12 layers
// with six products of 192 to 768 terms, so that their errors add up to 12 * 6 * 28 * 2^-24 = 1.2e-4.
TEST(PythonReaders, OnnxRuntimeComputesTransformersAndDepthwiseConvolutions) {
  const std::string modules = "numpy, onnxruntime", python = find_python(modules);
  if (python.empty()) GTEST_SKIP() << no_python(modules);
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 32);
  for (const std::string model : {"vit_tiny", "convnext_tiny", "mobilenet_v3_small"}) {
    SCOPED_TRACE(model);
    const Arguments data = {"--dataset", "folder", "--data", workshop.path("colors")};
    Arguments flags = {"--model", model, "--image-size", "32", "--batch-size", "12", "--max-steps", "2"};
    flags.insert(flags.end(), data.begin(), data.end());
    ASSERT_EQ(workshop.train(model, flags).exit_code, 0);
    const std::string onnx = workshop.path("model.onnx"), npy = workshop.path("logits.npy");
    ASSERT_EQ(workshop.run("convoy-export", {"--checkpoint", workshop.path(model), "--onnx", onnx}).exit_code,
              0);
    workshop.evaluated(workshop.path(model), {"--data", workshop.path("colors"), "--logits", npy});
    const ProcessResult read = run_program({python, "-c", R"(
import json, pathlib, sys, numpy, onnxruntime
files = sorted(pathlib.Path(sys.argv[1]).glob("test/*/*.bmp"))
rows = [numpy.frombuffer(file.read_bytes()[54:], numpy.uint8).reshape(32, 32, 3) for file in files]
images = numpy.stack([row[::-1, :, ::-1].transpose(2, 0, 1) for row in rows]).astype(numpy.float32) / 255
found, = onnxruntime.InferenceSession(sys.argv[2]).run(["logits"], {"images": images})
expected = numpy.load(sys.argv[3])
print(json.dumps({"shapes": [found.shape, expected.shape], "error": float(abs(found - expected).max() / abs(expected).max()),
                  "spread": float(expected.std(axis=0).max() / abs(expected).max())}))
)",
                                            workshop.path("colors"), onnx, npy});
    ASSERT_EQ(read.exit_code, 0) << read.err;
    const Json found = Json::parse(read.out);
    EXPECT_EQ(found["shapes"], Json({{36, 3}, {36, 3}}));
    EXPECT_LT(found["error"].get<double>(), 1.2e-4);
    EXPECT_GT(found["spread"].get<double>(), 1e-3) << "the images have different logits";
  }
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
