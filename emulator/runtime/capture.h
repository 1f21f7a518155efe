// Emulated streams, events and graphs, and the capture of streams into graphs.
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

#include "emulator/checking/stream_order.h"

namespace convoy::emulator {
class Capture;
}

/// A queue of operations of one GPU.
struct EmulatedStream {
  /// Returns false if it has to wait and has done nothing. An operation of a graph runs once per graph
  /// launch.
  using Operation = std::function<bool()>;
  int gpu = 0;
  std::deque<Operation> queue;
  bool is_destroyed = false;  // by its owner; queued operations still run
  bool is_blocking = false;   // ordered with the null stream of its GPU; the null stream is, too
  double queued_ms = 0;  // simulated time of the work that the GPU has not done yet (Settings::launch_ms)

  std::shared_ptr<convoy::emulator::Capture> capture;  // null: operations are queued, not captured
  std::vector<std::size_t> captured;                   // the nodes on which the next one depends
};

/// An event, as counters: the number of its recordings, and the last one that its stream has reached.
struct EmulatedEvent : std::enable_shared_from_this<EmulatedEvent> {
  bool is_timed = false;
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  double reached_ms = 0;
  convoy::emulator::StreamClock clock{};  // what comes before the last recording, if accesses are checked

  std::shared_ptr<convoy::emulator::Capture> capture;  // the capture of the last recording, or null
  std::vector<std::size_t> captured_after;             // the nodes on which that recording depends

  /// Counts one more recording. Returns the operation that marks it as reached.
  EmulatedStream::Operation next_recording();
};

/// A captured graph.
struct EmulatedGraph {
  struct Node {
    EmulatedStream::Operation work;
    std::shared_ptr<EmulatedEvent> event = nullptr;  // if set, replaces `work`: each launch records the event
    std::vector<std::size_t> after = {};             // the nodes on which this one depends
  };
  std::vector<Node> nodes;  // in capture order

  /// Returns all nodes in a random order that respects the dependencies.
  std::vector<std::size_t> random_order(std::mt19937_64& random) const;
};

/// An instantiated graph.
struct EmulatedGraphExec {
  std::shared_ptr<const EmulatedGraph> graph;
  /// Serializes the launches of the graph, also those on different streams.
  std::shared_ptr<EmulatedEvent> done = std::make_shared<EmulatedEvent>();
};

namespace convoy::emulator {

/// A capture in progress: the operations of one or more streams become nodes of one graph.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  /// Begins a capture on `origin`, owned by the calling thread.
  static void begin(EmulatedStream& origin, cudaStreamCaptureMode mode);
  /// Ends the capture of `stream`. All its streams leave it. Returns CUDA's error if the capture is invalid.
  static cudaError_t end(EmulatedStream& stream, std::shared_ptr<EmulatedGraph>& graph);
  /// Invalidates the capture of `stream`, which is about to be destroyed.
  static void abandon(EmulatedStream& stream);
  /// Makes `stream` depend on `event`, at least one of which is in a capture. A stream joins the capture of
  /// the event that it waits for.
  static cudaError_t wait(EmulatedStream& stream, EmulatedEvent& event);

  /// Adds a node after the earlier nodes of `stream`.
  void add(EmulatedStream& stream, EmulatedGraph::Node node);

  /// Makes the capture fail: nothing more can be captured, and end() returns no graph.
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
  std::vector<EmulatedStream*> streams_;  // the origin comes first
  std::shared_ptr<EmulatedGraph> graph_ = std::make_shared<EmulatedGraph>();
};

}  // namespace convoy::emulator
