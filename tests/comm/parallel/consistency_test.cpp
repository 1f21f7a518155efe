#include "convoy/comm/parallel/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/parallel/broadcast.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST(Broadcast, SendsTextOfRankZero) {
  on_ranks(3, [](dist::Communicator& comm) {
    for (const std::string& text : {std::string("one\nline"), std::string(), std::string(100000, 'x')})
      EXPECT_EQ(dist::broadcast_text(comm, comm.rank() == 0 ? text : "another"), text);
    comm.finish();
  });
}

TEST(Broadcast, GathersTextsOfAllRanks) {
  on_ranks(3, [](dist::Communicator& comm) {
    const std::vector<std::string> expected = {"", "one\nline", std::string(100000, 'x')};
    EXPECT_EQ(dist::all_gather_texts(comm, expected[static_cast<std::size_t>(comm.rank())]), expected);
    EXPECT_EQ(dist::all_gather_texts(comm, ""), std::vector<std::string>(3));
    comm.finish();
  });
}

TEST(Broadcast, SendsModelOfRankZero) {
  on_ranks(3, [](dist::Communicator& comm) {
    const TinyTraining expected("sgd", DType::f32, 1);
    TinyTraining training("sgd", DType::f32, static_cast<std::uint64_t>(comm.rank() + 1));
    training.net->keep_low_precision_copies(DType::bf16);
    const Tensor mean = training.net->buffers().front().tensor;
    if (comm.rank() == 0) mean.copy_from(Tensor::full(mean.shape(), 5, mean.dtype(), mean.context()));
    dist::broadcast_model(comm, *training.net);
    EXPECT_EQ(mean.to_vector<float>(), std::vector<float>(4, 5));
    for (std::size_t p = 0; p < training.net->parameters().size(); ++p) {
      const Variable variable = training.net->parameters()[p].variable;
      EXPECT_EQ(variable.value().to_vector<float>(),
                expected.net->parameters()[p].variable.value().to_vector<float>());
      if (variable.low_precision_copy().defined()) {
        EXPECT_EQ(variable.low_precision_copy().to(DType::f32).to_vector<float>(),
                  variable.value().to(DType::bf16).to(DType::f32).to_vector<float>());
      }
    }
    comm.finish();
  });
}

TEST(Consistency, AcceptsEqualEntries) {
  on_ranks(3, [](dist::Communicator& comm) {
    const TinyTraining training;
    std::vector<dist::ConsistencyEntry> entries = dist::consistency_entries_of(*training.net);
    entries.push_back({"--lr", "0.1"});
    dist::verify_consistency_entries(comm, entries);
    comm.finish();
  });
}

TEST(Consistency, NamesRanksAndDifferences) {
  on_ranks(4, [](dist::Communicator& comm) {
    const std::string lr = comm.rank() == 2 ? "0.2" : "0.1";
    EXPECT_EQ(message_of<UsageError>([&] {
                dist::verify_consistency_entries(comm, {{"--model", "lenet"}, {"--lr", lr}});
              }),
              "ranks do not agree: rank 2 has --lr 0.2, rank 0 has 0.1");
    const std::vector<dist::ConsistencyEntry> local =
        comm.rank() == 0 ? std::vector<dist::ConsistencyEntry>{{"--lr", "1"}}
                         : std::vector<dist::ConsistencyEntry>{{"--epochs", "2"}};
    EXPECT_EQ(
        message_of<UsageError>([&] { dist::verify_consistency_entries(comm, local); }),
        "ranks do not agree: rank 1 has no --lr, rank 0 has 1; --epochs 2, rank 0 has none (ranks 1, 2, 3 "
        "differ from rank 0)");
    comm.finish();
  });
}

TEST(Consistency, ComparesShapesAndTypesOfModels) {
  on_ranks(2, [](dist::Communicator& comm) {
    const TinyTraining training("sgd", DType::f32, 1, comm.rank() == 1 ? 7 : 5);
    EXPECT_EQ(message_of<UsageError>([&] {
                dist::verify_consistency_entries(comm, dist::consistency_entries_of(*training.net));
              }),
              "ranks do not agree: rank 1 has fc.weight f32 [7, 4], rank 0 has f32 [5, 4]; fc.bias f32 [7], "
              "rank 0 has f32 [5]");
    comm.finish();
  });
}

TEST(Consistency, TruncatesLongMessages) {
  on_ranks(2, [](dist::Communicator& comm) {
    std::vector<dist::ConsistencyEntry> entries;
    for (int i = 0; i < 20; ++i)
      entries.push_back({"--flag" + std::to_string(i), std::to_string(comm.rank())});
    EXPECT_THAT(message_of<UsageError>([&] { dist::verify_consistency_entries(comm, entries); }),
                HasSubstr("--flag2 1, rank 0 has 0; and 17 more"));
    comm.finish();
  });
}

TEST(EqualSums, NamesTensorAndRanksThatDiffer) {
  for (const int ranks : {2, 3, 4})
    on_ranks(ranks, [&](dist::Communicator& comm) {
      std::vector<Tensor> tensors;
      for (const std::int64_t count : {1, 1001, 30})
        tensors.push_back(Tensor::full({count}, 3, DType::f32, comm.context()));
      dist::verify_equal(comm, tensors, "the sum of bucket", "after step 5");
      const auto flip = [&](std::size_t tensor, std::size_t byte) {
        tensors[tensor].view().as<std::uint8_t>()[byte] ^= 1;
      };
      if (comm.rank() == 1) flip(1, 4003);
      if (comm.rank() == 1) flip(2, 0);  // the first tensor is named
      const auto error_now = [&] {
        return message_of<dist::CorruptionError>(
            [&] { dist::verify_equal(comm, tensors, "the sum of bucket", "after step 5"); });
      };
      const std::string error = error_now();
      EXPECT_THAT(error, HasSubstr("the sum of bucket 1 differs after step 5: rank "));
      EXPECT_THAT(error, HasSubstr("rank 1 has the checksum "));
      if (ranks == 2) {
        EXPECT_THAT(error, HasSubstr("rank 0 has the checksum "));
      } else {
        EXPECT_THAT(error, HasSubstr(", the other ranks have "));
      }
      if (comm.rank() == 0) flip(1, 4003);  // now as many ranks have one value as the other one, or more
      if (ranks == 4) {
        const std::string tie = error_now();
        EXPECT_THAT(tie, HasSubstr("ranks 0, 1 have the checksum "));
        EXPECT_THAT(tie, HasSubstr("ranks 2, 3 have the checksum "));
      }
      comm.finish();
    });
}

TEST(Replicas, AcceptsEqualParameters) {
  on_ranks(3, [](dist::Communicator& comm) {
    TinyTraining training;
    training.step(0);
    dist::check_replicas(comm, training.net->parameters(), "after step 1");
    comm.finish();
  });
}

TEST(Replicas, DetectsOneDifferentBit) {
  on_ranks(3, [](dist::Communicator& comm) {
    TinyTraining training;
    const std::vector<nn::NamedParameter> parameters = training.net->parameters();
    if (comm.rank() == 2)
      for (const std::size_t p : {1U, 2U}) {
        auto* const bytes = parameters[p].variable.value().view().as<std::uint8_t>();
        bytes[parameters[p].variable.value().bytes() - 1] ^= 1;
      }
    EXPECT_THAT(
        message_of<dist::CorruptionError>([&] { dist::check_replicas(comm, parameters, "after step 12"); }),
        HasSubstr("parameter " + parameters[1].name + " differs after step 12: rank 2 has the checksum "));
    comm.finish();
  });
}

}  // namespace
}  // namespace convoy::testing
