#include "engine/ranks/pipeline.h"

#include <cstring>
#include <new>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

// Copies a message to rows. Throws Error(kInternal) if its size is another one.
void fill(std::span<float> rows, const std::vector<std::byte>& message) {
  if (message.size() != rows.size_bytes()) {
    throw Error(ErrorCode::kInternal, "the ranks of a pipeline are out of step: " + std::to_string(message.size()) +
                                          " bytes arrived, expected " + std::to_string(rows.size_bytes()));
  }
  std::memcpy(rows.data(), message.data(), message.size());
}

std::string text_in(const std::vector<std::byte>& message) {
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

// Returns an error as a message: its code, then its text; an empty one for no error.
std::string message_of(const std::exception_ptr& error) {
  if (!error) return {};
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const Error& own) {
    code = own.code();
    text = own.what();
  } catch (const std::bad_alloc&) {
    code = ErrorCode::kOutOfMemory;
    text = "the machine has no memory left";
  } catch (const std::exception& other) {
    text = other.what();
  }
  return static_cast<char>(code) + text;
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<PipelineLink> link, std::vector<LayerRange> ranges)
    : link_(ranges.size() > 1 ? std::move(link) : nullptr), ranges_(std::move(ranges)) {}

int Pipeline::holder(int layer) const {
  int rank = 0;
  while (layer >= ranges_[static_cast<std::size_t>(rank)].last) ++rank;
  return rank;
}

void Pipeline::check_whole(const std::string& what) const {
  if (n_ranks() == 1) return;
  throw Error(ErrorCode::kUnsupported,
              what + " is not possible for a model that several ranks share: start winnow without MPI");
}

void Pipeline::receive_rows(std::span<float> rows) const {
  if (rank() > 0) fill(rows, link_->receive(rank() - 1, kRows));
}

void Pipeline::send_rows(std::span<const float> rows) const {
  if (!is_last()) link_->send(rank() + 1, kRows, std::as_bytes(rows));
}

void Pipeline::share_output(std::span<float> rows) const {
  if (is_last()) return send_to_others(kOutput, std::as_bytes(rows));
  fill(rows, link_->receive(n_ranks() - 1, kOutput));
}

void Pipeline::send_logits(std::span<const float> rows) const { send_to_others(kLogits, std::as_bytes(rows)); }

void Pipeline::receive_logits(std::span<float> rows) const { fill(rows, link_->receive(n_ranks() - 1, kLogits)); }

void Pipeline::share_layer(std::span<const std::byte> message) const { send_to_others(kLayer, message); }

std::vector<std::byte> Pipeline::receive_layer(int layer) const { return link_->receive(holder(layer), kLayer); }

SummarySink Pipeline::summary_sink() const {
  if (n_ranks() == 1) return nullptr;
  return [this](std::span<const std::byte> summary) { share_layer(summary); };
}

std::vector<std::vector<std::byte>> Pipeline::gather(std::span<const std::byte> message) const {
  send_to_others(kGathered, message);
  std::vector<std::vector<std::byte>> messages;
  for (int from = 0; from < n_ranks(); ++from) {
    if (from == rank()) {
      messages.emplace_back(message.begin(), message.end());
    } else {
      messages.push_back(link_->receive(from, kGathered));
    }
  }
  return messages;
}

std::string Pipeline::of_first(const std::string& text) const {
  if (is_first()) {
    send_to_others(kFirst, std::as_bytes(std::span(text)));
    return text;
  }
  return text_in(link_->receive(0, kFirst));
}

double Pipeline::of_first(double number) const {
  if (n_ranks() == 1) return number;
  const std::string bytes = of_first(std::string(reinterpret_cast<const char*>(&number), sizeof(number)));
  return numbers_in<double>(std::as_bytes(std::span(bytes))).at(0);
}

void Pipeline::tell_call(const std::string& message) const {
  send_to_others(kCalls, std::as_bytes(std::span(message)));
}

std::string Pipeline::hear_call() const { return text_in(link_->receive(0, kCalls)); }

void Pipeline::give_piece(int to, std::span<const char> piece) const {
  static_cast<void>(link_->receive(to, kPieces));  // waits for the request
  link_->send(to, kPieces, std::as_bytes(piece));
}

std::vector<char> Pipeline::take_piece(int from) const {
  link_->send(from, kPieces, {});
  return numbers_in<char>(link_->receive(from, kPieces));
}

void Pipeline::agree(const std::exception_ptr& error) const {
  const std::string own = message_of(error);
  std::vector<std::vector<std::byte>> all;
  together([&] { all = gather(std::as_bytes(std::span(own))); });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string message = text_in(all[rank]);
    const std::string whose = rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
    throw Error(static_cast<ErrorCode>(message.front()), whose + message.substr(1));
  }
}

void Pipeline::fail(const std::exception& error) const {
  const auto* own = dynamic_cast<const Error*>(&error);
  link_->fail(error.what());
  throw PipelineError(own != nullptr ? own->code() : ErrorCode::kInternal, error.what());
}

void Pipeline::send_to_others(Channel channel, std::span<const std::byte> message) const {
  for (int to = 0; to < n_ranks(); ++to) {
    if (to != rank()) link_->send(to, channel, message);
  }
}

}  // namespace winnow
