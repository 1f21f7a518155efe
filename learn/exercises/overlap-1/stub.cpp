#include <span>
#include <vector>

#include "links.h"

// Adds an array over all ranks. All ranks must call it for the same arrays in the same order.
void all_reduce(links::Rank& rank, std::span<float> data);

class Synchronizer {
 public:
  Synchronizer(links::Rank& rank, std::vector<std::span<float>> gradients)
      : rank_(rank), gradients_(std::move(gradients)), is_ready_(gradients_.size(), false) {}

  // Is called when gradient `number` is final on this rank. On another rank, the order of these calls may differ.
  //
  // TODO: call all_reduce for each gradient as soon as possible, in the same order on all ranks.
  void ready(int number) { all_reduce(rank_, gradients_[number]); }

 private:
  links::Rank& rank_;
  std::vector<std::span<float>> gradients_;
  std::vector<bool> is_ready_;
  std::size_t next_ = 0;
};
