// What an engine exchanges with the ranks that hold the other layers of its model (winnow/pipeline.h). Without any it
// holds all layers and exchanges nothing.
//
// Used with the engine's mutex held.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/layer_spec.h"
#include "winnow/pipeline.h"

namespace winnow {

class GgufFile;

class Pipeline {
 public:
  // ranges: [n_ranks], one after the other. link: may be null with one rank.
  Pipeline(std::shared_ptr<PipelineLink> link, std::vector<LayerRange> ranges);

  int rank() const { return link_ ? link_->rank() : 0; }
  bool is_first() const { return rank() == 0; }
  int n_ranks() const { return static_cast<int>(ranges_.size()); }
  bool is_leading() const { return n_ranks() > 1 && is_first(); }
  bool is_last() const { return rank() + 1 == n_ranks(); }
  const LayerRange& layers() const { return ranges_[static_cast<std::size_t>(rank())]; }
  const std::vector<LayerRange>& ranges() const { return ranges_; }
  bool holds(int layer) const { return layer >= layers().first && layer < layers().last; }
  int holder(int layer) const;  // the rank that does

  // Other ranks take part in a cut of this one's layers: they are told of each, and none may go on alone.
  bool shares_cuts() const { return n_ranks() > 1; }
  // How many of n layers rows go through before the rows behind them do. With one rank there is nobody who waits.
  int layers_at_once(int n) const { return n_ranks() > 1 ? n : 1; }
  // Throws Error(kUnsupported) where other ranks hold a part of the model: for what is not done over several.
  void check_whole(const std::string& what) const;

  // Hidden states between two ranges of layers; nothing where there is none before or after.
  void receive_rows(std::span<float> rows) const;
  void send_rows(std::span<const float> rows) const;
  // What the last rank has made of them (logits): every other gets a copy.
  void share_output(std::span<float> rows) const;
  // The logits of a step, likewise, but each rank takes them when it wants: in the order of the steps.
  void send_logits(std::span<const float> rows) const;
  void receive_logits(std::span<float> rows) const;
  // Of a layer: its holder tells all others, who hear it. Layers of one rank in ascending order.
  void share_layer(std::span<const std::byte> message) const;
  std::vector<std::byte> receive_layer(int layer) const;
  // Every rank's message, by rank. All of them call it.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> message) const;

  // Rank 0's text, or its number, on every rank.
  std::string of_first(const std::string& text) const;
  double of_first(double number) const;
  // Bytes from one rank to another, who asks for each: senders run ahead of nobody.
  void give_piece(int to, std::span<const char> piece) const;
  std::vector<char> take_piece(int from) const;

  // Rank 0 tells all others what it calls.
  void tell_call(const std::string& message) const;
  std::string hear_call() const;

  // What ranks can refuse together: where `body` throws on any of them, all throw that error (the first rank's), and
  // their engines go on.
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

  // A part of a computation that other ranks take part in: what it throws ends theirs, too, and is a PipelineError.
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
  void agree(const std::exception_ptr& error) const;
  [[noreturn]] void fail(const std::exception& error) const;
  void send_to_others(Channel channel, std::span<const std::byte> message) const;

  const std::shared_ptr<PipelineLink> link_;  // null with one rank
  std::vector<LayerRange> ranges_;
};

// The numbers that a message was made of.
template <class T>
std::vector<T> numbers_in(std::span<const std::byte> message) {
  std::vector<T> numbers(message.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), message.data(), numbers.size() * sizeof(T));
  return numbers;
}

// How n_ranks ranks share a model's layers. first_layers: [n_ranks - 1], where each rank but the first begins; empty:
// such that the largest part of the file is smallest. A layer that attends to another's entries stays with it. Throws
// Error(kInvalidArgument) where that cannot be.
std::vector<LayerRange> split_layers(const ModelSpec& spec, const GgufFile& file, int n_ranks,
                                     std::span<const int> first_layers);

}  // namespace winnow
