// A communicator of the CPU: a stream with a thread of its own, on which a transport's blocking calls run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace convoy {

class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(std::unique_ptr<Transport> transport, const CommOptions& options = {});
  ~CpuCommunicator() override;

  std::string name() const override { return transport_->name(); }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override;
  void abort(const std::string& reason) noexcept override;

 private:
  void launch_all_reduce(const Collective& collective, View data) override;
  void launch_reduce_scatter(const Collective& collective, ConstView in, View out) override;
  void launch_broadcast(const Collective& collective, View data) override;
  void launch_all_gather(const Collective& collective, ConstView in, View out) override;
  void run_barrier(const Collective& collective) override;
  std::vector<std::string> run_gather(const Collective& collective, const std::string& mine) override;
  std::unique_ptr<Communicator> run_split(const Collective& collective, int color) override;
  void run_finish(const Collective& collective) override;

  /// Enqueues a call of the transport. None is made after one has failed.
  void submit(const Collective& collective, std::function<void(const Transport::Call&)> work);
  /// The same, and waits for it.
  void run(const Collective& collective, std::function<void(const Transport::Call&)> work);
  void fail_with(std::exception_ptr failure);

  CommOptions options_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first
  std::atomic<bool> failed_ = false;
  bool finished_ = false;
  CpuStream stream_;  // last: its thread uses all of the above
};

}  // namespace convoy
