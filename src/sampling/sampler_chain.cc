#include "sampling/sampler_chain.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/model_impl.h"
#include "text/tokenizer.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// At a lower temperature a draw is greedy in float32 anyway, and the division of the logits would overflow.
constexpr float kColdest = 1e-6f;

// The number of tokens that Mirostat 1 uses for its estimate, as in llama.cpp.
constexpr int kMirostatTokens = 100;

bool is_greedy(const SamplingOptions& options) { return options.temperature < kColdest; }

// A token whose logit is this far below the largest still has a float32 probability above 0, whatever the sum.
constexpr float kLowest = 80;

void drop_impossible(llama_sampler*, llama_token_data_array* candidates) {
  float highest = candidates->data[0].logit;
  for (std::size_t i = 0; i < candidates->size; ++i) highest = std::max(highest, candidates->data[i].logit);
  llama_token_data* end =
      std::remove_if(candidates->data, candidates->data + candidates->size,
                     [&](const llama_token_data& candidate) { return candidate.logit < highest - kLowest; });
  candidates->size = static_cast<std::size_t>(end - candidates->data);
}

// Returns a sampler that removes candidates of probability 0, which a grammar, a bias or a penalty makes. Some of
// libllama's samplers multiply a probability by its logarithm, which is NaN for 0.
llama_sampler* make_drop() {
  static llama_sampler_i methods = [] {
    llama_sampler_i made{};
    made.name = [](const llama_sampler*) { return "impossible"; };
    made.apply = drop_impossible;
    return made;
  }();
  return llama_sampler_init(&methods, nullptr);
}

llama_sampler* make_biases(const SamplingOptions& options, int n_vocab) {
  std::vector<llama_logit_bias> biases;
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.token < 0 || bias.token >= n_vocab) {
      throw Error(ErrorCode::kInvalidArgument, "the logit bias names token " + std::to_string(bias.token) +
                                                   ": the model has " + std::to_string(n_vocab) + " tokens");
    }
    biases.push_back({bias.token, bias.bias});
  }
  return llama_sampler_init_logit_bias(n_vocab, static_cast<int>(biases.size()), biases.data());
}

llama_sampler* make_dry(const SamplingOptions& options, const Model& model) {
  const Tokenizer& tokenizer = model.impl().tokenizer;
  if (!tokenizer.has_tokens()) {
    throw Error(ErrorCode::kUnsupported, "the model file has no tokenizer, which DRY needs: leave its multiplier at 0");
  }
  std::vector<const char*> breakers;
  for (const std::string& breaker : options.dry_sequence_breakers) breakers.push_back(breaker.c_str());
  const int n_looked_at =
      options.dry_penalty_last_n < 0 ? static_cast<int>(model.info().n_ctx_train) : options.dry_penalty_last_n;
  return llama_sampler_init_dry(tokenizer.vocab(), options.dry_multiplier, options.dry_base, options.dry_allowed_length,
                                n_looked_at, breakers.data(), breakers.size());
}

// libllama compares the texts of all candidates with each other. This many take a millisecond.
constexpr int kMostInfillCandidates = 128;

// Returns two samplers: one that keeps the likeliest candidates, and libllama's infill sampler.
std::vector<llama_sampler*> make_infill(const Tokenizer& tokenizer) {
  const llama_vocab* vocab = tokenizer.vocab();
  if (!tokenizer.has_tokens() ||
      (llama_vocab_eot(vocab) == LLAMA_TOKEN_NULL && llama_vocab_eos(vocab) == LLAMA_TOKEN_NULL)) {
    throw Error(ErrorCode::kUnsupported, "the model file names no end token, which the sampler 'infill' needs");
  }
  return {llama_sampler_init_top_k(kMostInfillCandidates), llama_sampler_init_infill(vocab)};
}

llama_sampler* make_temperature(const SamplingOptions& options) {
  if (options.dynatemp_range <= 0) return llama_sampler_init_temp(options.temperature);
  return llama_sampler_init_temp_ext(options.temperature, options.dynatemp_range, options.dynatemp_exponent);
}

// Returns whether the sampler only penalises repetitions. Such samplers apply to greedy sampling and Mirostat as well.
bool is_penalty(const std::string& name) { return name == "penalties" || name == "dry"; }

}  // namespace

llama_sampler_ptr make_chain(const SamplingOptions& options, const Model& model, std::uint32_t seed) {
  const int n_vocab = model.info().n_vocab;
  const auto n_least = static_cast<std::size_t>(std::max(options.min_keep, 1));
  const std::map<std::string, std::function<llama_sampler*()>> makers = {
      {"penalties",
       [&] {
         return llama_sampler_init_penalties(n_vocab, options.repeat_last_n, options.repeat_penalty,
                                             options.frequency_penalty, options.presence_penalty);
       }},
      {"dry", [&] { return options.dry_multiplier > 0 ? make_dry(options, model) : nullptr; }},
      {"top_n_sigma",
       [&] { return options.top_n_sigma > 0 ? llama_sampler_init_top_n_sigma(options.top_n_sigma) : nullptr; }},
      {"top_k", [&] { return llama_sampler_init_top_k(options.top_k); }},
      {"typ_p",
       [&] { return options.typical_p < 1 ? llama_sampler_init_typical(options.typical_p, n_least) : nullptr; }},
      {"top_p", [&] { return llama_sampler_init_top_p(options.top_p, n_least); }},
      {"min_p", [&] { return llama_sampler_init_min_p(options.min_p, n_least); }},
      {"xtc",
       [&] {
         return options.xtc_probability > 0
                    ? llama_sampler_init_xtc(options.xtc_probability, options.xtc_threshold, n_least, seed)
                    : nullptr;
       }},
      {"temperature", [&] { return make_temperature(options); }},
  };
  llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) {
    if (sampler != nullptr) llama_sampler_chain_add(chain.get(), sampler);
  };
  if (!options.logit_bias.empty()) add(make_biases(options, n_vocab));
  const auto needs_possible = [&](const std::string& name) {
    return (name == "typ_p" && options.typical_p < 1) || (name == "temperature" && options.dynatemp_range > 0);
  };
  const bool has_mirostat = options.mirostat != 0 && !is_greedy(options);
  for (const std::string& name : options.samplers) {
    if (!is_penalty(name) && (is_greedy(options) || has_mirostat)) continue;
    if (needs_possible(name)) add(make_drop());
    if (name == "infill") {
      for (llama_sampler* sampler : make_infill(model.impl().tokenizer)) add(sampler);
    } else {
      add(makers.at(name)());
    }
  }
  if (is_greedy(options)) {
    add(llama_sampler_init_greedy());
  } else if (has_mirostat) {
    add(make_drop());
    add(make_temperature(options));
    add(make_drop());
    add(options.mirostat == 1
            ? llama_sampler_init_mirostat(n_vocab, seed, options.mirostat_tau, options.mirostat_eta, kMirostatTokens)
            : llama_sampler_init_mirostat_v2(seed, options.mirostat_tau, options.mirostat_eta));
  } else {
    add(llama_sampler_init_dist(seed));
  }
  return chain;
}

}  // namespace winnow
