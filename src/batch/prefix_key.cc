#include "batch/prefix_key.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fnv1a.h"
#include "eviction/cut/cut.h"

namespace winnow {
namespace {

constexpr const char* kTurns = " turns";  // contexts, and prompts that follow them and are kept whole
constexpr const char* kAware = " aware";  // prompts that are cut once all of their tokens are read

// Returns what tells the tables of two methods apart: their text has the names of files, whose contents change.
std::string tables_key(const EvictionOptions& eviction) {
  Fnv1a hash;
  const auto add = [&hash](const std::vector<double>& numbers) {
    const std::uint64_t n = numbers.size();
    hash.add(&n, sizeof(n)).add(numbers.data(), n * sizeof(double));
  };
  if (eviction.importance) std::ranges::for_each(eviction.importance->weight, add);
  if (eviction.utility_profile) {
    add(eviction.utility_profile->ratios);
    add(eviction.utility_profile->kept);
  }
  return eviction.importance || eviction.utility_profile ? " tables " + hex_text(hash.value()) : "";
}

std::string options_key(const SessionOptions& options) {
  return std::string(entry_type_name(options.key_type)) + " " + std::string(entry_type_name(options.value_type)) + " " +
         options.eviction.text() + " " + (options.budget ? options.budget->text() : "all") + " " +
         std::to_string(options.n_ctx) + " " + std::to_string(options.prefill_chunk) + " " +
         std::to_string(static_cast<int>(options.decode_cut)) + " " + std::to_string(options.cut_every) +
         tables_key(options.eviction);
}

// Returns the key's suffix for sequences that continue a context of n tokens which was cut in one go.
std::string exact(std::size_t n_context) { return " exact " + std::to_string(n_context); }

}  // namespace

bool continues(const BatchRequest& request) {
  // A method that scores with the whole prompt in view cannot cut again.
  return request.reuse == Reuse::kContinue && !Cut::needs(request.session.eviction).reconstruction_only;
}

std::string prefix_key(const BatchRequest& request, const SessionOptions& checked) {
  const std::string key = options_key(checked);
  if (!request.session.eviction.evicts()) return key;
  if (!continues(request)) return key + exact(request.context.size());
  return key + (request.context.empty() ? kAware : kTurns);
}

std::vector<std::string> saved_prefix_keys(const SessionOptions& options, std::span<const Token> tokens) {
  const std::string key = options_key(options);
  if (!options.eviction.evicts()) return {key};
  return {key + kTurns, key + kAware, key + exact(tokens.size())};
}

}  // namespace winnow
