// Tests of what cuDNN's descriptors accept and reject. Builds with the real library run the same tests
// against it, without a GPU, so the emulated library rejects what the real one rejects.
#include <gtest/gtest.h>

#include "tests/cuda_emulator/vendor/vendor_cudnn.h"

namespace convoy::emulator {
namespace {

cudnnStatus_t status_of(const TensorSpec& spec) { return spec.make().status(); }
cudnnStatus_t status_of(const ConvolutionSpec& spec) { return spec.make().status(); }

const Ints kFilter{16, 8, 3, 3}, kOutput{2, 16, 5, 5};

/// Returns the status of a 3x3 convolution of 5x5 pixels with the given tensors and convolution.
cudnnStatus_t status_of(const OperationNames& names, const Ints& w, const Ints& y,
                        const ConvolutionSpec& convolution = {}) {
  const RawDescriptor x_tensor = TensorSpec{}.make(), w_tensor = TensorSpec{.id = 2, .dims = w}.make(),
                      y_tensor = TensorSpec{.id = 3, .dims = y}.make(), made = convolution.make();
  EXPECT_EQ(made.status(), CUDNN_STATUS_SUCCESS);
  return make_operation(names, x_tensor, w_tensor, y_tensor, made).status();
}

TEST(VendorDescriptor, RejectsTensorsWithMissingAttributes) {
  EXPECT_EQ(status_of(TensorSpec{}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_of(TensorSpec{.dims = {}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(TensorSpec{.alignment = {}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(TensorSpec{.dims = Ints{2, 8}}), CUDNN_STATUS_BAD_PARAM) << "no strides";
}

TEST(VendorDescriptor, RejectsInvalidTensors) {
  EXPECT_EQ(status_of(TensorSpec{.strides = Ints{200, 1, 40}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(TensorSpec{.strides = Ints{200, -1, 40, 8}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(TensorSpec{.alignment = 0}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(TensorSpec{.alignment = 2}), CUDNN_STATUS_BAD_PARAM) << "elements of four bytes";
  EXPECT_EQ(status_of(TensorSpec{.type = CUDNN_DATA_HALF, .alignment = 2}), CUDNN_STATUS_SUCCESS);
}

TEST(VendorDescriptor, RejectsInvalidConvolutions) {
  EXPECT_EQ(status_of(ConvolutionSpec{}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_of(ConvolutionSpec{.spatial_dims = 3}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(ConvolutionSpec{.padding = Ints{1}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of(ConvolutionSpec{.padding = Ints{-1, 1}}), CUDNN_STATUS_BAD_PARAM);
}

TEST(VendorDescriptor, RejectsAttributesOfOtherDescriptorsAndTypes) {
  const std::int64_t numbers[] = {1, 2};
  const auto status = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* elements) {
    RawDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    return tensor.set(name, type, count, elements).status();
  };
  EXPECT_EQ(status(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, numbers), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, numbers),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, 1, numbers),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(status(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, numbers), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 0, numbers), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr), CUDNN_STATUS_BAD_PARAM);
}

TEST(VendorDescriptor, CannotChangeOnceFinalized) {
  RawDescriptor tensor = TensorSpec{}.make();
  const std::int64_t id = 2;
  EXPECT_EQ(cudnnBackendSetAttribute(tensor.get(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendFinalize(tensor.get()), CUDNN_STATUS_BAD_PARAM);
}

TEST(VendorDescriptor, CanBeReadOnceFinalized) {
  RawDescriptor tensor = TensorSpec{}.make();
  std::int64_t count = -1, numbers[8] = {};
  const auto get = [&](const RawDescriptor& from, std::int64_t maximum) {
    return cudnnBackendGetAttribute(from.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, maximum,
                                    &count, numbers);
  };
  EXPECT_EQ(get(tensor, 8), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(numbers[1], 8);
  EXPECT_EQ(get(tensor, 2), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(get(RawDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR), 8), CUDNN_STATUS_NOT_INITIALIZED);
}

TEST(VendorDescriptor, AcceptsValidOperations) {
  for (const OperationNames& names : {kForward, kBackwardData, kBackwardFilter})
    EXPECT_EQ(status_of(names, kFilter, kOutput), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_of(kForward, kFilter, {2, 16, 3, 3}, {.strides = Ints{2, 2}}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_of(kForward, kFilter, {2, 16, 3, 3}, {.dilations = Ints{2, 2}}), CUDNN_STATUS_SUCCESS);
}

TEST(VendorDescriptor, RejectsOperationsWithMismatchedShapes) {
  for (const OperationNames& names : {kForward, kBackwardData, kBackwardFilter}) {
    EXPECT_EQ(status_of(names, kFilter, {2, 16, 4, 5}), CUDNN_STATUS_BAD_PARAM) << "rows";
    EXPECT_EQ(status_of(names, kFilter, {2, 8, 5, 5}), CUDNN_STATUS_BAD_PARAM) << "output channels";
    EXPECT_EQ(status_of(names, kFilter, {3, 16, 5, 5}), CUDNN_STATUS_BAD_PARAM) << "images";
    EXPECT_EQ(status_of(names, {16, 7, 3, 3}, kOutput), CUDNN_STATUS_BAD_PARAM) << "input channels";
  }
}

TEST(VendorDescriptor, RejectsOperationsWithMissingAttributes) {
  const RawDescriptor x = TensorSpec{}.make(), w = TensorSpec{.id = 2, .dims = kFilter}.make();
  RawDescriptor without_y(kForward.operation), without_convolution(kForward.operation);
  const RawDescriptor y = TensorSpec{.id = 3, .dims = kOutput}.make(), convolution = ConvolutionSpec{}.make();
  without_y.set(kForward.x, x).set(kForward.w, w).set(kForward.convolution, convolution);
  without_y.set(kForward.alpha, 1.0f).set(kForward.beta, 0.0f);
  EXPECT_EQ(without_y.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(without_y.finalize().status(), CUDNN_STATUS_BAD_PARAM);
  without_convolution.set(kForward.x, x).set(kForward.w, w).set(kForward.y, y);
  without_convolution.set(kForward.alpha, 1.0f).set(kForward.beta, 0.0f);
  EXPECT_EQ(without_convolution.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(without_convolution.finalize().status(), CUDNN_STATUS_BAD_PARAM);
}

TEST(VendorDescriptor, RejectsOperationsOfUnfinalizedTensors) {
  const RawDescriptor x(CUDNN_BACKEND_TENSOR_DESCRIPTOR), w = TensorSpec{.id = 2, .dims = kFilter}.make(),
                                                          y = TensorSpec{.id = 3, .dims = kOutput}.make();
  EXPECT_NE(make_operation(kForward, x, w, y, ConvolutionSpec{}.make()).status(), CUDNN_STATUS_SUCCESS);
}

TEST(VendorDescriptor, RejectsAdditionWithoutSecondOperand) {
  const RawDescriptor x = TensorSpec{}.make(), y = TensorSpec{.id = 2}.make(),
                      bias = TensorSpec{.id = 3, .dims = Ints{1, 8, 1, 1}}.make(),
                      add = make_pointwise(CUDNN_POINTWISE_ADD);
  EXPECT_EQ(make_operation(add, x, &bias, y).status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(make_operation(add, x, nullptr, y).status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(make_operation(make_pointwise(CUDNN_POINTWISE_RELU_FWD), x, nullptr, y).status(),
            CUDNN_STATUS_SUCCESS);
}

TEST(VendorDescriptor, RejectsVariantPackWithMissingPointers) {
  int array[2] = {};
  const auto status = [&](const Ints& ids) {
    RawDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::vector<void*>{&array[0], &array[1]});
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::vector<void*>{nullptr});
    return pack.finalize().status();
  };
  EXPECT_EQ(status({1, 2}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status({1, 2, 3}), CUDNN_STATUS_BAD_PARAM);
}

TEST(VendorDescriptor, RejectsNullDescriptor) {
  EXPECT_EQ(cudnnBackendFinalize(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST(VendorDescriptor, TruncatesReasonOfLastFailure) {
  EXPECT_EQ(status_of(TensorSpec{.alignment = 0}), CUDNN_STATUS_BAD_PARAM);
  char message[256] = "", cut[8] = "1234567";
  cudnnGetLastErrorString(message, sizeof message);
  EXPECT_STRNE(message, "");
  EXPECT_EQ(status_of(TensorSpec{.alignment = 0}), CUDNN_STATUS_BAD_PARAM);
  cudnnGetLastErrorString(cut, 4);
  EXPECT_EQ(cut[3], '\0');
  EXPECT_STREQ(cut + 4, "567");
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM), "CUDNN_STATUS_BAD_PARAM");
}

}  // namespace
}  // namespace convoy::emulator
