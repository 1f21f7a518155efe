#include <span>
#include <vector>

#include "links.h"

// Adds an array over all ranks. All ranks must call it for the same arrays in the same order.
void all_reduce(links::Rank& rank, std::span<float> data);

class Synchronizer {
 public:
  Synchronizer(links::Rank& rank, std::vector<std::span<float>> gradients)
      : rank_(rank), gradients_(std::move(gradients)), is_ready_(gradients_.size(), false) {}

  void ready(int number) {
    is_ready_[number] = true;
    for (; next_ < is_ready_.size() && is_ready_[next_]; ++next_) all_reduce(rank_, gradients_[next_]);
  }

 private:
  links::Rank& rank_;
  std::vector<std::span<float>> gradients_;
  std::vector<bool> is_ready_;
  std::size_t next_ = 0;
};
