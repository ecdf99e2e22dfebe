#include "batch/prefix_key.h"

#include "eviction/cut/cut.h"

namespace winnow {
namespace {

constexpr const char* kTurns = " turns";  // contexts, and prompts that follow them and are kept whole
constexpr const char* kAware = " aware";  // prompts that are cut once all of their tokens are read

std::string options_key(const SessionOptions& options) {
  return std::string(entry_type_name(options.key_type)) + " " + std::string(entry_type_name(options.value_type)) + " " +
         options.eviction.text() + " " + (options.budget ? options.budget->text() : "all") + " " +
         std::to_string(options.n_ctx) + " " + std::to_string(options.prefill_chunk) + " " +
         std::to_string(static_cast<int>(options.decode_cut)) + " " + std::to_string(options.cut_every);
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
