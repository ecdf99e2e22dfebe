// The messages between an engine and the ranks that hold the other layers of its model (winnow/pipeline.h). Without
// other ranks it holds all layers and sends nothing.
//
// Used with the engine's mutex held. Functions that send or receive throw PipelineError once a rank has failed.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eviction/cut/cut.h"
#include "model/layer_spec.h"
#include "winnow/pipeline.h"

namespace winnow {

class GgufFile;

// One rank's end of a pipeline.
class Pipeline {
 public:
  // ranges: [n_ranks], consecutive. link: may be null with one rank.
  Pipeline(std::shared_ptr<PipelineLink> link, std::vector<LayerRange> ranges);

  int rank() const { return link_ ? link_->rank() : 0; }
  bool is_first() const { return rank() == 0; }
  int n_ranks() const { return static_cast<int>(ranges_.size()); }
  bool is_leading() const { return n_ranks() > 1 && is_first(); }
  bool is_last() const { return rank() + 1 == n_ranks(); }
  const LayerRange& layers() const { return ranges_[static_cast<std::size_t>(rank())]; }
  const std::vector<LayerRange>& ranges() const { return ranges_; }
  bool holds(int layer) const { return layer >= layers().first && layer < layers().last; }
  int holder(int layer) const;  // the rank that holds the layer

  // Returns through how many of n layers rows go before the next rows begin: with one rank 1, since nobody waits.
  int layers_at_once(int n) const { return n_ranks() > 1 ? n : 1; }
  // Throws Error(kUnsupported), naming `what`, if several ranks hold the model.
  void check_whole(const std::string& what) const;

  // Receive hidden states from the rank before and send them to the next; do nothing where there is none.
  void receive_rows(std::span<float> rows) const;
  void send_rows(std::span<const float> rows) const;
  // Sends the last rank's output (logits, hidden states) to every other rank, which receives it in `rows`.
  void share_output(std::span<float> rows) const;
  // Send the logits of a step from the last rank, and receive them on another when it needs them, in the order of
  // steps.
  void send_logits(std::span<const float> rows) const;
  void receive_logits(std::span<float> rows) const;
  // Send a message about a layer from its holder to all others, and receive it there. Layers of one rank come in
  // ascending order.
  void share_layer(std::span<const std::byte> message) const;
  std::vector<std::byte> receive_layer(int layer) const;
  // Returns what shares the layers that a cut adds on this rank; null with one rank.
  SummarySink summary_sink() const;
  // Returns every rank's message, by rank. All ranks call it together.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> message) const;

  // Return rank 0's text or number on every rank.
  std::string of_first(const std::string& text) const;
  double of_first(double number) const;
  // Move a piece from one rank to another, which asks for each: a sender never runs ahead.
  void give_piece(int to, std::span<const char> piece) const;
  std::vector<char> take_piece(int from) const;

  // Send a call of rank 0 to all others, and receive it there.
  void tell_call(const std::string& message) const;
  std::string hear_call() const;

  // Runs `body` on all ranks: if it throws on any of them, all throw that error (the first rank's), and their engines
  // go on.
  template <class Body>
  void all_or_none(const Body& body) const {
    if (!link_) return body();
    std::exception_ptr error;
    try {
      body();
    } catch (const PipelineError&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    agree(error);
  }

  // Runs and returns `body`, a computation that all ranks take part in: an error ends theirs, too, as a PipelineError.
  template <class Body>
  auto together(const Body& body) const {
    if (!link_) return body();
    try {
      return body();
    } catch (const PipelineError&) {
      throw;
    } catch (const std::exception& error) {
      fail(error);
    }
  }

 private:
  enum Channel : int { kRows, kOutput, kLayer, kGathered, kFirst, kPieces, kCalls, kLogits };
  // Throws the first rank's error on all ranks, if any rank has one.
  void agree(const std::exception_ptr& error) const;
  // Ends the computation of all ranks with this error.
  [[noreturn]] void fail(const std::exception& error) const;
  void send_to_others(Channel channel, std::span<const std::byte> message) const;

  const std::shared_ptr<PipelineLink> link_;  // null with one rank
  std::vector<LayerRange> ranges_;
};

// Returns the numbers that a message consists of.
template <class T>
std::vector<T> numbers_in(std::span<const std::byte> message) {
  std::vector<T> numbers(message.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), message.data(), numbers.size() * sizeof(T));
  return numbers;
}

// Returns the layers of each of n_ranks ranks. first_layers: [n_ranks - 1], where each rank but the first begins;
// empty: the largest part of the file is made as small as possible. A layer that attends to another's entries stays on
// its rank. Throws Error(kInvalidArgument) for an impossible split.
std::vector<LayerRange> split_layers(const ModelSpec& spec, const GgufFile& file, int n_ranks,
                                     std::span<const int> first_layers);

}  // namespace winnow
