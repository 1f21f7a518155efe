// Tests of step records: recording real steps, files, and replay on links.
#include "bench/overlap/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/overlap/replay.h"
#include "bench/overlap/report.h"
#include "bench/overlap/step.h"
#include "bench/overlap/timeline.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::bench {
namespace {

using convoy::testing::message_of;
using convoy::testing::TempDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Pointwise;

const DeviceContext& cpu() {
  static const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  return device;
}

StepRecord small_record() {
  return {
      .model = "made up",
      .batch = 3,
      .precision = "fp32",
      .device = "paper",
      .step_ms = 20,
      .backward_ms = 10,
      .gradients = {{.name = "a", .numel = 5, .ready_ms = 10}, {.name = "b", .numel = 7, .ready_ms = 0.1}}};
}

/// Simulates the record on the links of the goals.
std::vector<OverlapRow> rows_of(const StepRecord& record, double latency_us) {
  std::vector<Link> links;
  for (const double gb_s : {475, 25, 1}) links.push_back({.gb_s = gb_s, .latency_us = latency_us});
  return simulate_all(record, compared_plans(record), links);
}

/// Calls `compare` with Convoy's row and PyTorch's for each type and link.
template <class F>
void for_each_pair(const std::vector<OverlapRow>& rows, F&& compare) {
  int pairs = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i)
    if (rows[i].plan == kConvoyPlan && rows[i + 1].plan == kPytorchPlan) {
      compare(rows[i], rows[i + 1]);
      ++pairs;
    }
  EXPECT_EQ(pairs, 6);
}

TEST(OverlapRecord, RoundTripsThroughAFile) {
  const TempDirectory directory;
  const std::filesystem::path file = directory.path() / "step.json";
  for (const DType dtype : {DType::f32, DType::f64}) {
    StepRecord record = small_record();
    record.dtype = dtype;
    write_record(record, file);
    EXPECT_EQ(read_record(file), record);
    const StepRecord scaled = scaled_to(record, 4);
    write_record(scaled, file);
    EXPECT_EQ(read_record(file), scaled);
  }
}

TEST(OverlapRecord, ScalesAllTimes) {
  const StepRecord scaled = scaled_to(small_record(), 4);
  EXPECT_EQ(scaled.step_ms, 4);
  EXPECT_DOUBLE_EQ(scaled.backward_ms, 2);
  EXPECT_DOUBLE_EQ(scaled.gradients[0].ready_ms, 2);
  EXPECT_DOUBLE_EQ(scaled.gradients[1].ready_ms, 0.02);
  EXPECT_TRUE(scaled.is_scaled);
  EXPECT_THROW(scaled_to(small_record(), 0), UsageError);
}

TEST(OverlapRecord, RejectsInconsistentRecords) {
  const TempDirectory directory;
  const std::filesystem::path file = directory.path() / "step.json";
  const auto message = [&](const StepRecord& record) {
    write_record(record, file);
    return message_of<UsageError>([&] { read_record(file); });
  };
  StepRecord late = small_record(), long_backward = late, empty = late, none = late, whole = late;
  late.gradients[0].ready_ms = 10.5;
  EXPECT_THAT(message(late),
              AllOf(HasSubstr("--replay " + file.string()), HasSubstr("a: found a ready time of 10.5 ms")));
  long_backward.backward_ms = 21;
  EXPECT_THAT(message(long_backward), HasSubstr("found a backward of 21 ms in a step of 20 ms"));
  empty.gradients[1].numel = 0;
  EXPECT_THAT(message(empty), HasSubstr("b: found 0 elements"));
  none.gradients.clear();
  EXPECT_THAT(message(none), HasSubstr("found no gradients"));
  whole.dtype = DType::i32;
  EXPECT_THAT(message(whole), HasSubstr("found gradients in i32, expected f32 or f64"));

  const auto of_text = [&](const std::string& text) {
    directory.write("step.json", text);
    return message_of<UsageError>([&] { read_record(file); });
  };
  EXPECT_THAT(of_text("{"), HasSubstr("found no valid record of a step"));
  EXPECT_THAT(of_text("[]"), HasSubstr("found no valid record of a step"));
  EXPECT_THAT(of_text(R"({"format": 2})"), HasSubstr("found format 2, expected 1"));
  EXPECT_THAT(of_text(R"({"format": 1, "model": 7})"), HasSubstr("found no valid record of a step"));
  EXPECT_THAT(message_of<UsageError>([&] { read_record(directory.path() / "none.json"); }),
              HasSubstr("none.json"));
}

/// In a real step, every gradient is ready within backward, and that of the first layer is the last. For
/// ResNet-18, each bucket of Convoy's plan is contained in one of PyTorch's. Without latency its exposed time
/// can therefore not be longer, whenever gradients are ready.
TEST(OverlapRecord, ExposesAtMostAsMuchAsPytorchForResNet18) {
  const StepRecord record = record_step({.model = "resnet18", .batch = 1, .image_size = 16}, 1, cpu());
  ASSERT_EQ(record.gradients.size(), 62U);
  EXPECT_EQ(record.bytes(), 4U * 11173962);
  EXPECT_LT(record.backward_ms, record.step_ms);
  const std::vector<double> ready = record.ready_ms();
  for (const double ms : ready) EXPECT_THAT(ms, AllOf(::testing::Gt(0), Le(record.backward_ms)));
  EXPECT_EQ(std::max_element(ready.begin(), ready.end()), ready.begin());    // conv1.weight
  EXPECT_GE(std::min_element(ready.begin(), ready.end()), ready.end() - 2);  // fc

  const auto near = [](double megabytes) { return ::testing::DoubleNear(megabytes * 1e6, 5e3); };
  std::vector<double> bytes;
  for (const std::size_t each : sent_bytes(compared_plans(record)[1].plan, DType::f32))
    bytes.push_back(static_cast<double>(each));
  EXPECT_THAT(bytes, ElementsAre(near(9.46), near(26.49), near(8.74)));

  for_each_pair(rows_of(record, 0), [](const OverlapRow& ours, const OverlapRow& pytorch) {
    EXPECT_LE(ours.exposure.exposed_ms, pytorch.exposure.exposed_ms * (1 + 1e-9)) << ours.link.gb_s;
  });
}

TEST(OverlapReplay, StepTakesAtLeastTheTransferTime) {
  const StepChoice choice{.model = "lenet", .batch = 2};
  const Link link{.gb_s = 1, .latency_us = 20000, .ranks = 4};
  const std::unique_ptr<dist::Communicator> comm = make_link_communicator(link);
  EXPECT_EQ(comm->size(), 4);
  LocalStep alone(choice, cpu()), linked(choice, cpu());
  dist::GradientSynchronizer gradients(linked.parameters(), *comm);
  for (int i = 0; i < 3; ++i) {  // the second step rebuilds the bucket plan
    alone.run();
    linked.run(&gradients);
    double transfers_ms = 0;
    for (const std::size_t bytes : sent_bytes(gradients.plan(), DType::f32))
      transfers_ms += link.ms_for(bytes);
    EXPECT_GE(linked.step_ms(), transfers_ms);
    EXPECT_GT(linked.exposed_ms(), 0);
  }
  EXPECT_TRUE(gradients.bucket_plan_final());
  // Only zeros were added. Gradients are stored at other addresses, so libraries may sum in another order.
  // Parameter updates are at least 1e-5.
  for (std::size_t p = 0; p < alone.parameters().size(); ++p)
    EXPECT_THAT(linked.parameters()[p].variable.value().to_vector<float>(),
                Pointwise(FloatNear(1e-6F), alone.parameters()[p].variable.value().to_vector<float>()));
  comm->finish();
}

TEST(OverlapReplay, MeasuresPairsOfSteps) {
  LinkSteps steps({.model = "lenet", .batch = 2}, cpu());
  const StepRecord record = record_step({.model = "lenet", .batch = 2}, 1, cpu());
  for (const NamedPlan& plan : compared_plans(record))
    for (const DType sent : {DType::f32, DType::bf16})
      EXPECT_GT(steps.measure(2, plan.plan, sent, {.gb_s = 25}).waited_ms, 0) << plan.name;
}

TEST(OverlapReplay, AbortEndsTheWait) {
  const std::unique_ptr<dist::Communicator> comm = make_link_communicator({.gb_s = 1, .latency_us = 1e9});
  const Tensor data = Tensor::full({1}, 1, DType::f32, cpu());
  comm->all_reduce(data.view());
  comm->abort("enough");
  EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("enough"));
}

TEST(OverlapReport, IsDeterministic) {
  const StepRecord record = small_record();
  EXPECT_EQ(to_string(record, rows_of(record, 10)), to_string(record, rows_of(record, 10)));
  EXPECT_EQ(timeline_of(record, rows_of(record, 10)), timeline_of(record, rows_of(record, 10)));
  EXPECT_THAT(to_string(record, rows_of(record, 10)),
              AllOf(HasSubstr("step 20.000 ms, of which backward 10.000 ms; 2 gradients"),
                    // One bucket, which ends 10 us after backward: 0.05 % of the step, none of it hidden.
                    HasSubstr("| 25 | convoy | 1 | 0.001 | 0.010 | 0.010 | 0.05 % | 0.0 % |")));
  EXPECT_THAT(to_string(scaled_to(record, 2), rows_of(scaled_to(record, 2), 10)), HasSubstr("a projection"));
}

TEST(OverlapReport, EvaluatesGoals) {
  StepRecord record = small_record();
  // 25 MB that are ready early, and 0.4 MB at the end that both rules send in a separate bucket.
  record.gradients = {{.name = "a", .numel = 100000, .ready_ms = 10},
                      {.name = "b", .numel = 6000000, .ready_ms = 2},
                      {.name = "c", .numel = 200000, .ready_ms = 1}};
  const std::vector<Goal> goals = goals_of(record, rows_of(record, 0));
  ASSERT_EQ(goals.size(), 2U);
  const double last_bytes =
      4 * (100000 + 32 + 3);  // padded to a multiple of 64 values, plus one flag per gradient
  EXPECT_NEAR(goals[0].found, last_bytes * 1.75 / 475e6 / 20, 1e-9);
  EXPECT_TRUE(goals[0].met());
  EXPECT_NEAR(goals[1].found, 1, 1e-9);
  EXPECT_FALSE(goals[1].met());
  EXPECT_FALSE((Goal{.text = "", .found = 0.031, .maximum = 0.03}.met()));
  EXPECT_EQ(goals_of(record, simulate_all(record, compared_plans(record), {{.gb_s = 3}})).size(), 0U);
}

}  // namespace
}  // namespace convoy::bench
