// Streams, events, and the graphs that work on streams is recorded into.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace convoy::emulator {
class Capture;
}

/// A queue of operations of one GPU.
struct EmulatedStream {
  /// False: it has to wait, and nothing happened. A graph's operations run once in each launch.
  using Operation = std::function<bool()>;
  int gpu = 0;
  std::deque<Operation> queue;
  bool is_destroyed = false;  // to its owner; what is queued runs all the same

  std::shared_ptr<convoy::emulator::Capture> capture;  // null: operations are queued, not recorded
  std::vector<std::size_t> captured;                   // the nodes that the next one comes after
};

/// Counts its recordings: the latest asked for, and the latest that its stream has come to.
struct EmulatedEvent : std::enable_shared_from_this<EmulatedEvent> {
  bool is_timed = false;
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  double reached_ms = 0;

  std::shared_ptr<convoy::emulator::Capture> capture;  // in which it was recorded last; null: in none
  std::vector<std::size_t> captured_after;             // and after which of its nodes

  /// Counts one more recording; the operation is its stream's coming to it.
  EmulatedStream::Operation next_recording();
};

struct EmulatedGraph {
  struct Node {
    EmulatedStream::Operation work;
    std::shared_ptr<EmulatedEvent> event = nullptr;  // in the place of work: each launch records it
    std::vector<std::size_t> after = {};             // nodes, all of them before this one
  };
  std::vector<Node> nodes;  // in the order of their recording

  /// Every node once, at random, each after those that it comes after.
  std::vector<std::size_t> random_order(std::mt19937_64& random) const;
};

struct EmulatedGraphExec {
  std::shared_ptr<const EmulatedGraph> graph;
  /// Launches of one graph run one after the other, on whatever streams they are.
  std::shared_ptr<EmulatedEvent> done = std::make_shared<EmulatedEvent>();
};

namespace convoy::emulator {

/// What one or several streams do, while it is recorded into one graph.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  /// By the calling thread; adds itself to the stream.
  static void begin(EmulatedStream& origin, cudaStreamCaptureMode mode);
  /// Of the stream's capture, which all its streams leave.
  static cudaError_t end(EmulatedStream& stream, std::shared_ptr<EmulatedGraph>& graph);
  /// The stream ends, and with it what it records.
  static void abandon(EmulatedStream& stream);
  /// A dependency where the stream, or the event, or both are captured. A stream joins the capture of the
  /// event that it waits for.
  static cudaError_t wait(EmulatedStream& stream, EmulatedEvent& event);

  void add(EmulatedStream& stream, EmulatedGraph::Node node);

  /// Nothing more can be recorded, and its end gives no graph.
  void invalidate() { is_valid_ = false; }
  bool is_valid() const { return is_valid_; }
  bool is_over() const { return streams_.empty(); }
  cudaStreamCaptureMode mode() const { return mode_; }
  std::thread::id thread() const { return thread_; }

 private:
  void release_streams();
  bool is_joined() const;

  EmulatedStream* origin_ = nullptr;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeGlobal;
  std::thread::id thread_ = std::this_thread::get_id();
  bool is_valid_ = true;
  std::vector<EmulatedStream*> streams_;  // the origin first
  std::shared_ptr<EmulatedGraph> graph_ = std::make_shared<EmulatedGraph>();
};

}  // namespace convoy::emulator
