#include "cli/ranks.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/process_memory.h"

namespace winnow::cli {
namespace {

constexpr int kChannel = 100;  // engines use lower ones

std::shared_ptr<PipelineLink> the_ranks;

// What rank `from` has, on every rank.
std::vector<std::byte> bytes_of_rank(int from, std::span<const std::byte> own) {
  PipelineLink& link = *the_ranks;
  if (link.rank() != from) return link.receive(from, kChannel);
  for (int to = 0; to < link.n_ranks(); ++to) {
    if (to != from) link.send(to, kChannel, own);
  }
  return {own.begin(), own.end()};
}

template <class T>
T of_rank(int from, const T& own) {
  T value{};
  const std::vector<std::byte> bytes = bytes_of_rank(from, std::as_bytes(std::span(&own, 1)));
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return value;
}

}  // namespace

void set_ranks(std::shared_ptr<PipelineLink> link) { the_ranks = std::move(link); }

const std::shared_ptr<PipelineLink>& ranks() { return the_ranks; }

bool speaks() { return the_ranks == nullptr || the_ranks->rank() == 0; }

std::uint32_t of_first_rank(std::uint32_t number) { return the_ranks == nullptr ? number : of_rank(0, number); }

std::string of_first_rank(const std::string& text) {
  if (the_ranks == nullptr) return text;
  const std::vector<std::byte> bytes = bytes_of_rank(0, std::as_bytes(std::span(text)));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<RankMemory> memory_of_ranks(const Engine& engine) {
  std::vector<RankMemory> all;
  if (the_ranks == nullptr) return all;
  const auto [first, last] = engine.layers();
  const RankMemory own{.first_layer = first,
                       .last_layer = last,
                       .rss_peak_bytes = rss_peak_bytes(),
                       .kv_bytes_peak = engine.memory().kv_bytes_peak};
  for (int rank = 0; rank < the_ranks->n_ranks(); ++rank) all.push_back(of_rank(rank, own));
  return all;
}

}  // namespace winnow::cli
