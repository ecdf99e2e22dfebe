// A model whose layers are spread over several machines: each rank of a pipeline holds a range of layers, with their
// weights and their part of every cache, and hands hidden states to the next.
//
// All ranks run the same program with the same arguments: they make the same calls of engines and sessions in the same
// order, and get the same results. A call that computes, saves or loads, Session::statistics and Session::positions
// wait for the other ranks to make it, too. Or rank 0 alone is the program, and the others follow it
// (EngineOptions::is_led, Engine::follow).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/api.h"
#include "winnow/error.h"

namespace WINNOW_API winnow {

// How one rank reaches the others. An engine computes with one call at a time, and so it uses its link; engines of one
// process may share a link if their calls take turns.
class PipelineLink {
 public:
  virtual ~PipelineLink() = default;

  virtual int rank() const = 0;  // 0, ..., n_ranks() - 1
  virtual int n_ranks() const = 0;

  // Returns before the other rank has received it. Messages of one sender and one channel (0, 1, ...) arrive in order.
  // Both throw PipelineError once a rank has failed.
  virtual void send(int to, int channel, std::span<const std::byte> message) = 0;
  virtual std::vector<std::byte> receive(int from, int channel) = 0;

  // This rank cannot go on: all others' calls throw from now on, with this message.
  virtual void fail(const std::string& message) noexcept = 0;
};

// What a computation throws that several ranks take part in: one of them has failed, and none of their engines can go
// on.
class PipelineError : public Error {
 public:
  using Error::Error;
};

// Links of n_ranks ranks within one process, each for a thread of its own.
std::vector<std::shared_ptr<PipelineLink>> local_pipeline(int n_ranks);

}  // namespace winnow
