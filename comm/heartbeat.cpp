#include "comm/heartbeat.h"

#include <algorithm>

namespace convoy {
namespace {

constexpr double kPeriod = 0.1;  // seconds

View bytes_of(void* data, std::size_t bytes) { return {data, {static_cast<std::int64_t>(bytes)}, DType::u8}; }

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<Communicator> comm)
    : arriving_(static_cast<std::size_t>(comm->size())),
      latest_(arriving_),
      comm_(std::move(comm)),
      came_(comm_->stream()) {}

void Heartbeat::tick(const Beat& mine) {
  if (is_under_way_ && came_.reached()) {
    comm_->check_errors();
    latest_ = arriving_;
    is_under_way_ = false;
  }
  // A rank that wants to end does not make the others wait for it.
  if (!is_under_way_ && !is_over() && (next_.passed() || mine.is_ending != 0)) start(mine);
}

void Heartbeat::start(const Beat& mine) {
  mine_ = mine;
  next_ = Deadline(kPeriod);
  comm_->all_gather(bytes_of(&mine_, sizeof mine_),
                    bytes_of(arriving_.data(), sizeof(Beat) * arriving_.size()));
  came_.record(comm_->stream());
  is_under_way_ = true;
}

bool Heartbeat::is_over() const {
  return std::all_of(latest_.begin(), latest_.end(), [](const Beat& beat) { return beat.is_ending != 0; });
}

}  // namespace convoy
