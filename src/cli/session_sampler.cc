#include "cli/session_sampler.h"

#include <span>
#include <utility>

namespace winnow::cli {

Sampler make_sampler(std::shared_ptr<const Model> model, const SamplingOptions& options, const Session& session) {
  Sampler sampler(std::move(model), options);
  const std::span<const Token> tokens = session.tokens();
  for (const Token token : tokens.last(options.n_looked_back(tokens.size()))) sampler.accept(token);
  return sampler;
}

}  // namespace winnow::cli
