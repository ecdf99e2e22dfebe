// Pipeline parallelism: the layers of a model are spread over several machines. Each rank of a pipeline holds a range
// of layers, with their weights and their part of every cache, and sends hidden states to the next rank.
//
// There are two ways to run. Either all ranks run the same program with the same arguments: they make the same calls of
// engines and sessions in the same order, and get the same results. A call that computes, saves or loads,
// Session::statistics and Session::positions then wait until the other ranks make it, too. Or rank 0 alone runs the
// program, and the others follow it (EngineOptions::is_led, Engine::follow).
//
// A call that one rank alone ends, as a progress callback that stops a prefill in the middle of a layer does, ends all
// ranks with PipelineError: the others wait for what it would have sent.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/api.h"
#include "winnow/error.h"

namespace WINNOW_API winnow {

// A rank's connection to the others, for the program to implement. An engine makes one call at a time of its link.
// Engines of one process may share a link if their calls take turns.
class PipelineLink {
 public:
  virtual ~PipelineLink() = default;

  virtual int rank() const = 0;  // 0, ..., n_ranks() - 1
  virtual int n_ranks() const = 0;

  // Sends a message and returns, possibly before the other rank has received it. Messages of one sender and one channel
  // (0, 1, ...) arrive in order. Throws PipelineError once a rank has failed.
  virtual void send(int to, int channel, std::span<const std::byte> message) = 0;
  // Waits for the next message of a rank on a channel and returns it. Throws PipelineError once a rank has failed.
  virtual std::vector<std::byte> receive(int from, int channel) = 0;

  // Declares that this rank cannot go on: from now on all other ranks' calls throw PipelineError with this message.
  virtual void fail(const std::string& message) noexcept = 0;
};

// The error of a computation over several ranks: one of them has failed, and none of their engines can go on.
class PipelineError : public Error {
 public:
  using Error::Error;
};

// Returns the links of n_ranks ranks within one process, each to be used from a thread of its own.
std::vector<std::shared_ptr<PipelineLink>> local_pipeline(int n_ranks);

}  // namespace winnow
