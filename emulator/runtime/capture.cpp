#include "emulator/runtime/capture.h"

#include <algorithm>
#include <utility>

#include "emulator/runtime/device_clock.h"

EmulatedStream::Operation EmulatedEvent::next_recording() {
  return [event = shared_from_this(), recording = ++recorded] {
    event->reached = std::max(event->reached, recording);
    event->reached_ms = convoy::emulator::device_ms();
    return true;
  };
}

std::vector<std::size_t> EmulatedGraph::random_order(std::mt19937_64& random) const {
  std::vector<std::size_t> order;
  std::vector<std::size_t> missing(nodes.size());  // number of dependencies of each node that are not done
  std::vector<std::vector<std::size_t>> dependents(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    missing[node] = nodes[node].after.size();
    for (const std::size_t earlier : nodes[node].after) dependents[earlier].push_back(node);
    if (missing[node] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    std::uniform_int_distribution<std::size_t> any(0, ready.size() - 1);
    std::swap(ready[any(random)], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const std::size_t later : dependents[node])
      if (--missing[later] == 0) ready.push_back(later);
  }
  return order;
}

namespace convoy::emulator {

void Capture::begin(EmulatedStream& origin, cudaStreamCaptureMode mode) {
  origin.capture = std::make_shared<Capture>();
  origin.captured.clear();
  origin.capture->origin_ = &origin;
  origin.capture->mode_ = mode;
  origin.capture->streams_ = {&origin};
}

cudaError_t Capture::end(EmulatedStream& stream, std::shared_ptr<EmulatedGraph>& graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin_ != &stream) {
    capture->invalidate();
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode_ != cudaStreamCaptureModeRelaxed && capture->thread_ != std::this_thread::get_id()) {
    capture->invalidate();
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool is_joined = capture->is_joined();
  capture->release_streams();
  const std::shared_ptr<EmulatedGraph> captured = std::exchange(capture->graph_, nullptr);
  if (!capture->is_valid_) return cudaErrorStreamCaptureInvalidated;
  if (!is_joined) return cudaErrorStreamCaptureUnjoined;
  graph = captured;
  return cudaSuccess;
}

void Capture::abandon(EmulatedStream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  capture->invalidate();
  std::erase(capture->streams_, &stream);
  if (capture->origin_ == &stream) capture->release_streams();  // no stream is left that could end it
}

void Capture::release_streams() {
  for (EmulatedStream* const member : streams_) member->capture = nullptr;
  streams_.clear();
}

cudaError_t Capture::wait(EmulatedStream& stream, EmulatedEvent& event) {
  const std::shared_ptr<Capture> to = stream.capture, from = event.capture;
  if (from == nullptr) {
    to->invalidate();
    return cudaErrorStreamCaptureIsolation;  // each replay would wait for work that ran once
  }
  if (from->is_over() || !from->is_valid()) {
    if (to != nullptr) to->invalidate();
    return from->is_over() ? cudaErrorCapturedEvent : cudaErrorStreamCaptureInvalidated;
  }
  if (to == nullptr) {
    stream.capture = from;
    stream.captured = event.captured_after;
    from->streams_.push_back(&stream);
    return cudaSuccess;
  }
  if (to != from) {
    to->invalidate();
    from->invalidate();
    return cudaErrorStreamCaptureMerge;
  }
  for (const std::size_t node : event.captured_after)
    if (std::find(stream.captured.begin(), stream.captured.end(), node) == stream.captured.end())
      stream.captured.push_back(node);
  return cudaSuccess;
}

void Capture::add(EmulatedStream& stream, EmulatedGraph::Node node) {
  node.after = std::exchange(stream.captured, {graph_->nodes.size()});
  graph_->nodes.push_back(std::move(node));
}

/// Returns whether the last node of the origin depends on all captured nodes.
bool Capture::is_joined() const {
  std::vector<bool> is_before(graph_->nodes.size(), false);
  for (const std::size_t node : origin_->captured) is_before[node] = true;
  for (std::size_t node = is_before.size(); node-- > 0;)
    if (is_before[node])
      for (const std::size_t earlier : graph_->nodes[node].after) is_before[earlier] = true;
  return std::find(is_before.begin(), is_before.end(), false) == is_before.end();
}

}  // namespace convoy::emulator
