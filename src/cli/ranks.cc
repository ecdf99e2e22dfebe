#include "cli/ranks.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace winnow::cli {
namespace {

constexpr int kChannel = 100;  // engines use lower ones

std::shared_ptr<PipelineLink> the_ranks;

// Returns the number of rank `from`, on every rank.
std::uint64_t of_rank(int from, std::uint64_t own) {
  PipelineLink& link = *the_ranks;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&own, 1));
  if (link.rank() == from) {
    for (int to = 0; to < link.n_ranks(); ++to) {
      if (to != from) link.send(to, kChannel, bytes);
    }
    return own;
  }
  std::uint64_t number = 0;
  const std::vector<std::byte> message = link.receive(from, kChannel);
  std::memcpy(&number, message.data(), std::min(message.size(), sizeof(number)));
  return number;
}

}  // namespace

void set_ranks(std::shared_ptr<PipelineLink> link) { the_ranks = std::move(link); }

const std::shared_ptr<PipelineLink>& ranks() { return the_ranks; }

bool speaks() { return the_ranks == nullptr || the_ranks->rank() == 0; }

std::uint64_t least_of_ranks(std::uint64_t number) {
  std::uint64_t least = number;
  for (int rank = 0; the_ranks != nullptr && rank < the_ranks->n_ranks(); ++rank) {
    least = std::min(least, of_rank(rank, number));
  }
  return least;
}

}  // namespace winnow::cli
