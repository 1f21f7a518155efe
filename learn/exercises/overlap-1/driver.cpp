#include <algorithm>

#include "program.h"

static thread_local const std::vector<bool>* ready_now = nullptr;  // of the rank that runs
static thread_local std::vector<int>* added_now = nullptr;

void all_reduce(links::Rank& rank, std::span<float> data) {
  added_now->push_back(static_cast<int>(data.size()) - 1);
  if (!(*ready_now)[data.size() - 1]) throw std::size_t{data.size() - 1};
  const int n = rank.size(), right = (rank.rank() + 1) % n, left = (rank.rank() + n - 1) % n;
  std::vector<float> out(data.begin(), data.end()), in(data.size());
  for (int step = 0; step < n - 1; ++step) {
    rank.exchange(right, out, left, in);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += in[i];
    out.swap(in);
  }
}

void lesson::run(Case& at) {
  const int ranks = at.size(0), n = at.size(1);
  std::vector<std::vector<std::vector<float>>> data(ranks);
  std::vector<std::vector<int>> added(ranks);
  std::vector<int> early(ranks, -1);
  int most = 0;
  for (auto& of_rank : data)
    for (int number = 0; number < n; ++number)
      of_rank.push_back(at.values(number + 1));  // gradient i has i + 1 floats
  const auto before = data;
  const auto function = [&](links::Rank& rank) {
    std::vector<std::span<float>> spans(data[rank.rank()].begin(), data[rank.rank()].end());
    std::vector<bool> is_ready(n, false);
    std::vector<int>& own = added[rank.rank()];
    Synchronizer synchronizer(rank, spans);
    for (int i = 0; i < n; ++i) {
      // Odd ranks exchange gradients 0 and 1, 2 and 3, and so on.
      const int number = rank.rank() % 2 == 1 && (i ^ 1) < n ? i ^ 1 : i;
      is_ready[number] = true;
      ready_now = &is_ready, added_now = &own;
      try {
        most = std::max(most, i - static_cast<int>(own.size()));
        synchronizer.ready(number);
      } catch (std::size_t wrong) {
        early[rank.rank()] = static_cast<int>(wrong);
        return;
      }
    }
  };
  try {
    links::run(ranks, {}, function);
  } catch (const links::Mismatch& error) {
    for (int rank = 0; rank < ranks; ++rank)
      if (early[rank] >= 0)
        at.fail("gradient %d of rank %d was added before it was ready", early[rank], rank);
    at.find("CE401", "%s", error.what());
  }
  for (int number = 0; number < n; ++number)
    for (int rank = 0; rank < ranks; ++rank) {
      if (std::find(added[rank].begin(), added[rank].end(), number) == added[rank].end())
        at.fail("gradient %d was never added on rank %d", number, rank);
      for (int i = 0; i <= number; ++i) {
        float expected = 0;
        for (int other = 0; other < ranks; ++other) expected += before[other][number][i];
        if (data[rank][number][i] != expected)
          at.fail("gradient %d of rank %d is %g, expected %g", number, rank,
                  static_cast<double>(data[rank][number][i]), static_cast<double>(expected));
      }
    }
  at.count("gradients_that_wait", most);
}
