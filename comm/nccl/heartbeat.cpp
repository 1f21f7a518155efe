// Heartbeat: one all-gather after another, started every kPeriod and polled without waiting.
#include "convoy/comm/nccl/heartbeat.h"

#include <algorithm>

namespace convoy::dist {
namespace {

constexpr double kPeriod = 0.1;  // seconds

View bytes_of(void* data, std::size_t bytes) { return {data, {static_cast<std::int64_t>(bytes)}, DType::u8}; }

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<Communicator> comm)
    : received_(static_cast<std::size_t>(comm->size())),
      latest_(received_),
      comm_(std::move(comm)),
      exchanged_(comm_->stream()) {}

void Heartbeat::exchange(const HeartbeatMessage& local) {
  if (in_flight_ && exchanged_.reached()) {
    comm_->check_errors();
    latest_ = received_;
    in_flight_ = false;
  }
  // A finishing rank starts at once, so that its peers do not wait for the rest of the period.
  if (!in_flight_ && !all_finishing() && (next_exchange_.passed() || local.finishing != 0)) start(local);
}

void Heartbeat::start(const HeartbeatMessage& local) {
  local_ = local;
  next_exchange_ = Deadline(kPeriod);
  comm_->all_gather(bytes_of(&local_, sizeof local_),
                    bytes_of(received_.data(), sizeof(HeartbeatMessage) * received_.size()));
  exchanged_.record(comm_->stream());
  in_flight_ = true;
}

bool Heartbeat::all_finishing() const {
  return std::all_of(latest_.begin(), latest_.end(),
                     [](const HeartbeatMessage& message) { return message.finishing != 0; });
}

}  // namespace convoy::dist
