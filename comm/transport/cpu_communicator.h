// A communicator on the CPU: a stream with its own thread, which executes a transport's blocking calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/transport/transport.h"

namespace convoy::dist {

/// A Communicator that runs the calls of a Transport on its own thread. It adds sequence numbers, deadlines
/// and error propagation.
class CpuCommunicator final : public Communicator {
 public:
  /// Starts the thread, which makes all calls of `transport`.
  explicit CpuCommunicator(std::unique_ptr<Transport> transport, const CommOptions& options = {});
  ~CpuCommunicator() override;

  std::string name() const override { return transport_->name(); }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override;
  bool poll_peers() override;
  void set_timeout(double seconds) override { options_.timeout_seconds = seconds; }
  void abort(const std::string& reason) noexcept override;

 private:
  void launch(const CollectiveSignature& collective, ConstView in, View out) override;
  void run_barrier(const CollectiveSignature& collective) override;
  std::vector<std::string> run_gather_object(const CollectiveSignature& collective,
                                             const std::string& local) override;
  std::unique_ptr<Communicator> run_split(const CollectiveSignature& collective, int color) override;
  void run_finish(const CollectiveSignature& collective) override;

  /// Enqueues a call of the transport. After a failure, enqueued calls do nothing.
  void submit(const CollectiveSignature& collective, std::function<void(const Transport::Call&)> work);
  /// Does the same as submit(), then blocks until the call has completed. Throws its error.
  void run(const CollectiveSignature& collective, std::function<void(const Transport::Call&)> work);
  void fail_with(std::exception_ptr failure);

  CommOptions options_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first one
  std::atomic<bool> failed_ = false;
  bool finished_ = false;
  CpuStream stream_;  // destroyed first: its thread uses all other members
};

/// Returns a communicator of one rank, whose collectives copy data at most. Like the others it has a stream
/// with its own thread, so programs take the same code path with any number of ranks. Thread-safe.
std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options = {});

}  // namespace convoy::dist
