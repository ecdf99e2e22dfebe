#include "batch/admission.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "batch/prefix_key.h"
#include "cache/ragged_cache.h"
#include "engine/cpu/step_graph.h"
#include "engine/session_options.h"
#include "eviction/cut/cut.h"
#include "winnow/error.h"

namespace winnow {
namespace {

std::string mib(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

// Returns the bytes of pages for n entries in every head after those that a fork shares. They include the shared page
// that the fork has to copy and the last page, which may be partly used.
std::size_t tail_bytes(const ModelInfo& model, const SessionOptions& options, std::int64_t n) {
  const auto n_pages = static_cast<std::size_t>((n + kPageEntries - 1) / kPageEntries + 2);
  std::size_t bytes = 0;
  for (const LayerInfo& layer : model.layers) {
    if (layer.n_kv_head == 0) continue;
    // Entries are quantised once their page is full, so they are counted in their plain type.
    const std::size_t entry =
        kernels::entry_bytes(layer, kernels::plain_type(options.key_type), kernels::plain_type(options.value_type));
    bytes += n_pages * static_cast<std::size_t>(layer.n_kv_head) * kPageEntries * entry;
  }
  return bytes;
}

// Returns the estimated peak of KV and hidden bytes, without the recurrent states, which state_bytes counts for each
// session.
std::size_t sum(const MemoryEstimate& estimate) {
  return estimate.kv_bytes_peak - estimate.recurrent_bytes + estimate.hidden_bytes;
}

// Returns the bytes of the whole prompt's queries and their log-sum-exps in one layer at a time, as far as the method
// needs them.
std::size_t reading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t n_prompt) {
  const EvidenceNeeds needs = Cut::needs(options.eviction);
  std::size_t queries = 0, log_sums = 0;
  for (const LayerInfo& layer : model.layers) {
    if (!layer.is_evictable()) continue;
    const auto n_head = static_cast<std::size_t>(layer.n_head);
    queries = std::max(queries, n_head * static_cast<std::size_t>(layer.key_dim) * sizeof(float));
    log_sums = std::max(log_sums, n_head * sizeof(float));
  }
  return n_prompt * ((needs.all_queries ? queries : 0) + (needs.log_sum_exp ? log_sums : 0));
}

// Returns the bytes of a sampler's candidates and of the logits that it samples from.
std::size_t sampling_bytes(const ModelInfo& model) {
  constexpr std::size_t kCandidate = 12;
  return static_cast<std::size_t>(model.n_vocab) * (kCandidate + sizeof(float));
}

// Returns the bytes of the logits of as many of a prompt's rows as the engine computes together.
std::size_t scoring_bytes(const ModelInfo& model) {
  constexpr std::size_t kRows = 32;  // ForwardPass::read_rows
  return kRows * static_cast<std::size_t>(model.n_vocab) * sizeof(float);
}

// Returns the bytes for the prefill of a request's context after a hit.
std::size_t context_bytes(const BatchRequest& request, const SessionOptions& options, Engine& engine,
                          const PrefixHit& hit) {
  const auto n_context = static_cast<std::int32_t>(request.context.size());
  if (hit.n_tokens >= n_context) return 0;
  if (hit.n_tokens == 0) return sum(engine.estimate(options, n_context, 0));
  const std::int32_t n_read = n_context - hit.n_tokens;
  const ModelInfo& model = engine.model()->info();
  return tail_bytes(model, options, n_read) + (options.eviction.evicts() ? hit.page_bytes : 0) +
         static_cast<std::size_t>(n_read) * model.hidden_bytes_per_token();
}

MemoryNeeds page_needs(const BatchRequest& request, const SessionOptions& options, Engine& engine,
                       const PrefixHit& hit) {
  const ModelInfo& model = engine.model()->info();
  const auto n_context = static_cast<std::int32_t>(request.context.size());
  const auto n_prompt = static_cast<std::int32_t>(request.prompt.size());
  const auto n_answers = static_cast<std::size_t>(request.n_answers);
  // A cut while decoding writes to every page, so that answers share none.
  const bool shares = options.decode_cut == SessionOptions::DecodeCut::kKeep;
  if (request.context.empty() && hit.n_tokens == 0) {
    const MemoryEstimate one = engine.estimate(options, n_prompt, request.max_tokens);
    const std::size_t other = shares ? tail_bytes(model, options, request.max_tokens) : one.kv_bytes_peak;
    return {.own = sum(one) + (n_answers - 1) * other};
  }
  const std::int32_t n_read = n_context + n_prompt - std::max(n_context, hit.n_tokens);
  const std::size_t hidden = static_cast<std::size_t>(n_read) * model.hidden_bytes_per_token();
  const std::size_t context = context_bytes(request, options, engine, hit);
  if (!shares) {
    const MemoryEstimate whole = engine.estimate(options, n_context + n_prompt, request.max_tokens);
    return {.context = context, .own = n_answers * whole.kv_bytes_peak + hidden};
  }
  const bool is_cut = options.eviction.evicts() && request.context.empty() && n_read > 0;
  return {.context = context,
          .own = tail_bytes(model, options, std::int64_t{n_read} + request.max_tokens) +
                 (n_answers - 1) * tail_bytes(model, options, request.max_tokens) + hidden +
                 (is_cut ? hit.page_bytes : 0)};
}

// Returns the memory that a request needs. The pages are estimated last, and left out if the rest alone exceeds the
// limit: a client may choose an observation window of any size.
MemoryNeeds needs_of(const BatchRequest& request, const SessionOptions& options, Engine& engine, std::size_t limit,
                     const PrefixHit& hit = {}) {
  const ModelInfo& model = engine.model()->info();
  const auto n_answers = static_cast<std::size_t>(request.n_answers);
  const std::size_t state = state_bytes(model, options);
  const std::size_t n_cached = static_cast<std::size_t>(hit.n_tokens);
  const bool reads_context = request.context.size() > n_cached;
  MemoryNeeds needs{.context = reads_context ? state : 0,
                    .own = n_answers * (state + sampling_bytes(model) + step_bytes_per_sequence(model))};
  (reads_context ? needs.context : needs.own) += reading_bytes(
      model, options,
      reads_context ? request.context.size() - n_cached : request.context.size() + request.prompt.size() - n_cached);
  if (scores_prompt(request)) needs.own += scoring_bytes(model);
  if (limit > 0 && needs.context + needs.own > limit) return needs;
  const MemoryNeeds pages = page_needs(request, options, engine, hit);
  return {.context = needs.context + pages.context, .own = needs.own + pages.own};
}

// Returns the largest whole percentage of the prompt as budget with which the request would fit; 0 if none does.
int fitting_percentage(const BatchRequest& request, Engine& engine, std::size_t limit) {
  SessionOptions options = request.session;
  if (!options.eviction.evicts()) options.eviction = EvictionOptions::parse("snapkv");
  const auto fits = [&](int percentage) {
    options.budget = Budget{.unit = Budget::Unit::kFraction, .amount = percentage / 100.0};
    try {
      const MemoryNeeds needs = needs_of(request, options, engine, limit);
      return needs.context + needs.own <= limit;
    } catch (const Error&) {
      return false;  // the budget is below what the method always keeps
    }
  };
  int best = 99;
  while (best > 0 && !fits(best)) --best;
  return best;
}

// Resets the fields of a request for an embedding that have no meaning there.
void prepare_embedding(BatchJob& job, const Model& model) {
  BatchRequest& request = job.request;
  if (!request.context.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "an embedding is computed from the prompt alone: leave the context out");
  }
  request.session = embedding_session(model, request.session.n_ctx);
  request.reuse = Reuse::kNone;
  request.keep = false;
  request.n_answers = 1;
  request.max_tokens = 0;
  request.n_prompt_probabilities = -1;
  job.embedding.emplace(*request.embedding, static_cast<std::int32_t>(request.prompt.size()));
}

[[noreturn]] void refuse_for_good(const BatchJob& job, Engine& engine, std::size_t limit) {
  const BatchRequest& request = job.request;
  if (request.embedding) {
    throw Error(ErrorCode::kInvalidArgument, "the embedding of " + std::to_string(request.prompt.size()) +
                                                 " tokens needs " + mib(job.needs.context + job.needs.own) +
                                                 ", more than the memory limit of " + mib(limit) +
                                                 ": embed the text in parts");
  }
  const SessionOptions& options = request.session;
  std::string text = "a request with " + std::to_string(request.context.size() + request.prompt.size()) +
                     " tokens and up to " + std::to_string(request.max_tokens) + " more for each of " +
                     std::to_string(request.n_answers) + " answers needs " + mib(job.needs.context + job.needs.own) +
                     " with the method '" + options.eviction.method + "'" +
                     (options.budget ? " and a budget of " + options.budget->text() : "") +
                     ", more than the memory limit of " + mib(limit) + ": ";
  const int percentage = fitting_percentage(request, engine, limit);
  if (percentage > 0) {
    text += "a budget of " + std::to_string(percentage) + "% would fit" +
            (options.eviction.evicts() ? "" : " (with a method that evicts, e.g. snapkv)") +
            ", and so might a shorter answer";
  } else {
    text += "no budget makes it fit; shorten the prompt, ask for fewer tokens, or give the method a smaller window";
  }
  throw Error(ErrorCode::kInvalidArgument, text);
}

void check_tokens(std::span<const Token> tokens, int n_vocab) {
  for (const Token token : tokens) {
    if (token >= 0 && token < n_vocab) continue;
    throw Error(ErrorCode::kInvalidArgument, "there is no token " + std::to_string(token) +
                                                 ": the model's tokens are 0 to " + std::to_string(n_vocab - 1));
  }
}

}  // namespace

MemoryNeeds needs_after(const BatchRequest& request, Engine& engine, const PrefixHit& hit) {
  return needs_of(request, request.session, engine, 0, hit);
}

std::size_t state_bytes(const ModelInfo& model, const SessionOptions& options) {
  const EvidenceNeeds needs = evidence_needs(options);
  const auto n_rows = static_cast<std::size_t>(needs.window_rows);
  std::size_t bytes = 0;
  for (const LayerInfo& layer : model.layers) {
    if (!layer.is_evictable()) continue;
    const auto dim = static_cast<std::size_t>(layer.key_dim);
    const std::size_t row = static_cast<std::size_t>(layer.n_head) * dim;
    bytes += n_rows * row * sizeof(float) + (needs.query_moments ? row * (dim + 1) * sizeof(double) : 0);
  }
  // Recurrent layers hold two states: the present one and the next.
  return bytes + 2 * model.state_bytes() + static_cast<std::size_t>(model.n_vocab) * sizeof(float);
}

std::size_t loading_bytes(const ModelInfo& model, const SessionOptions& options, std::size_t file_bytes) {
  // The file does not contain the padding of partly filled pages, which is added here.
  return file_bytes + tail_bytes(model, options, 0) + state_bytes(model, options);
}

void make_samplers(BatchJob& job, const Engine& engine, const BatchOptions& batch) {
  const BatchRequest& request = job.request;
  if (request.embedding || request.n_answers > batch.n_parallel) return;  // check_job reports the error
  try {
    for (int i = 0; i < request.n_answers; ++i) {
      SamplingOptions sampling = request.sampling;
      const std::uint64_t random = SamplingOptions{}.seed;  // the greatest number: no answer's seed becomes it
      if (sampling.seed != random) {
        sampling.seed = static_cast<std::uint32_t>((sampling.seed + static_cast<std::uint64_t>(i)) % random);
      }
      job.samplers.emplace_back(engine.model(), sampling);
    }
  } catch (const Error& error) {
    job.sampling_error = error;
  }
}

void check_job(BatchJob& job, Engine& engine, const BatchOptions& batch) {
  BatchRequest& request = job.request;
  const ModelInfo& model = engine.model()->info();
  if (request.embedding) prepare_embedding(job, *engine.model());
  if (request.prompt.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  check_tokens(request.context, model.n_vocab);
  check_tokens(request.prompt, model.n_vocab);
  if (request.n_answers < 1 || request.n_answers > batch.n_parallel) {
    throw Error(ErrorCode::kInvalidArgument, "the number of answers is " + std::to_string(request.n_answers) +
                                                 ": ask for 1 to " + std::to_string(batch.n_parallel));
  }
  if (!request.has_answer) request.max_tokens = 0;
  if (scores_prompt(request) && request.context.empty()) request.reuse = Reuse::kNone;  // every token is read
  if (request.max_tokens < 1 && request.has_answer && !request.embedding) {
    throw Error(ErrorCode::kInvalidArgument,
                "max_tokens is " + std::to_string(request.max_tokens) + ": give 1 or more");
  }
  if (request.session.n_ctx == 0) request.session.n_ctx = model.n_ctx_train;
  const std::size_t n_tokens = request.context.size() + request.prompt.size();
  const auto n_ctx = static_cast<std::size_t>(std::max(request.session.n_ctx, 0));
  if (request.embedding && n_tokens > n_ctx) {
    throw Error(ErrorCode::kContextFull, "the text has " + std::to_string(n_tokens) +
                                             " tokens, more than the context of " + std::to_string(n_ctx) +
                                             ": shorten it, or embed it in parts");
  }
  if (n_tokens >= n_ctx && !request.embedding) {
    throw Error(ErrorCode::kContextFull, "the prompt has " + std::to_string(n_tokens) + " tokens, but the context of " +
                                             std::to_string(request.session.n_ctx) +
                                             " must also hold the answer's first token: shorten the prompt");
  }
  request.max_tokens = std::min(request.max_tokens, request.session.n_ctx - static_cast<std::int32_t>(n_tokens));
  if (job.sampling_error) throw Error(*job.sampling_error);
  const std::size_t limit = engine.memory().kv_bytes_limit;
  job.needs = needs_of(request, request.session, engine, limit);
  if (limit > 0 && job.needs.context + job.needs.own > limit) refuse_for_good(job, engine, limit);
  job.result.method = request.session.eviction.text();
  if (request.session.budget) job.result.budget = request.session.budget->text();
  job.result.prompt_tokens = static_cast<std::int32_t>(n_tokens);
  job.tokens = request.context;
  job.tokens.insert(job.tokens.end(), request.prompt.begin(), request.prompt.end());
  job.key = prefix_key(request, checked_session_options(request.session, engine.model()->impl()));
}

}  // namespace winnow
