#include "server/sampling_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "server/body_json.h"
#include "winnow/error.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostSamplers = 64;  // of one request, unknown ones included
constexpr std::size_t kMostBiasText = 64;  // bytes of a text whose tokens get a bias

// Returns a token's bias: a number is added to its logit, false excludes it.
float bias_of(const Json& json, const Fields& fields) {
  if (json == false) return -INFINITY;
  if (!json.is_number()) fields.refuse("logit_bias", "must give each token a number or false");
  return json.get<float>();
}

// Parses {"15043": 1}, as OpenAI has it, or [[15043, 1], ["text", false]], as llama-server does.
std::vector<LogitBias> parse_biases(const Json& json, const Fields& fields, const Model& model) {
  std::vector<LogitBias> biases;
  const auto add = [&](Token token, float bias) {
    if (token < 0 || token >= model.info().n_vocab) {
      fields.refuse("logit_bias", "names token " + std::to_string(token) + ": the model has " +
                                      std::to_string(model.info().n_vocab) + " tokens");
    }
    biases.push_back({token, bias});
  };
  if (!json.is_structured()) {
    fields.refuse("logit_bias", "must be an object with tokens as names, or a list of pairs [token, bias]");
  }
  if (json.size() > SamplingOptions::kMostBiases) {
    fields.refuse("logit_bias", "may have " + std::to_string(SamplingOptions::kMostBiases) + " tokens at most");
  }
  for (const auto& [name, value] : json.items()) {
    if (json.is_object()) {
      const bool is_number = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
      if (!is_number) {
        fields.refuse("logit_bias", "must have token numbers as names, not '" + name.substr(0, 64) + "'");
      }
      add(std::stoi(name), bias_of(value, fields));
      continue;
    }
    if (!value.is_array() || value.size() != 2) fields.refuse("logit_bias", "must be a list of pairs [token, bias]");
    const Json& token = value[0];
    const float bias = bias_of(value[1], fields);
    if (is_token(token)) {
      add(token, bias);
    } else if (token.is_string() && token.get_ref<const std::string&>().size() <= kMostBiasText) {
      for (const Token one : model.tokenize(token.get_ref<const std::string&>(), false, false)) add(one, bias);
    } else {
      fields.refuse("logit_bias",
                    "must name tokens by number or by a text of " + std::to_string(kMostBiasText) + " bytes at most");
    }
  }
  if (biases.size() > SamplingOptions::kMostBiases) {
    fields.refuse("logit_bias", "may have " + std::to_string(SamplingOptions::kMostBiases) + " tokens at most");
  }
  return biases;
}

std::vector<std::string> parse_texts(const Json& json, const Fields& fields, const std::string& name,
                                     std::size_t most) {
  if (!json.is_array() || json.size() > most) {
    fields.refuse(name, "must be a list of " + std::to_string(most) + " strings at most");
  }
  std::vector<std::string> texts;
  for (const Json& one : json) {
    if (!one.is_string()) fields.refuse(name, "must be a list of strings");
    texts.push_back(one);
  }
  return texts;
}

// Returns the value of a text with JSON, as which SillyTavern sends lists; null if it is none.
Json parsed_or_null(const std::string& text) {
  try {
    return parse_json(text);
  } catch (const ApiError&) {
    return nullptr;
  }
}

// Parses a list of names, or letters as llama-server's clients write them. Unknown names only give a warning: they
// belong to other versions of llama-server, and change an answer little.
std::vector<std::string> parse_samplers(const Json& json, const Fields& fields, std::vector<std::string>& warnings) {
  const std::vector<std::string>& known = SamplingOptions::sampler_names();
  std::vector<std::string> given;
  if (json.is_string()) {
    for (const char letter : json.get_ref<const std::string&>().substr(0, kMostSamplers)) {
      const std::string name = SamplingOptions::sampler_of_letter(letter);
      given.push_back(name.empty() ? std::string(1, letter) : name);
    }
  } else {
    given = parse_texts(json, fields, "samplers", kMostSamplers);
  }
  std::vector<std::string> samplers;
  for (const std::string& name : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      samplers.push_back(name);
    } else {
      warnings.push_back("the unknown sampler '" + valid_utf8(name.substr(0, 64)) + "' was left out");
    }
  }
  return samplers;
}

SamplingOptions with_fields(const Fields& fields, const Model& model, SamplingOptions sampling,
                            std::vector<std::string>& warnings) {
  const auto take = [&](const std::string& name, float& target, const SamplingRange& range) {
    if (const auto value = fields.number(name, range.lowest, range.highest)) target = static_cast<float>(*value);
  };
  const auto take_whole = [&](const std::string& name, int& target, const SamplingRange& range) {
    const auto lowest = static_cast<std::int64_t>(range.lowest), highest = static_cast<std::int64_t>(range.highest);
    if (const auto value = fields.integer(name, lowest, highest)) target = static_cast<int>(*value);
  };
  using Options = SamplingOptions;
  take("temperature", sampling.temperature, Options::kTemperature);
  take("top_p", sampling.top_p, Options::kTopP);
  take("min_p", sampling.min_p, Options::kMinP);
  take("frequency_penalty", sampling.frequency_penalty, {-100, 100});
  take("presence_penalty", sampling.presence_penalty, {-100, 100});
  take("repeat_penalty", sampling.repeat_penalty, {0.01, 100});
  take_whole("top_k", sampling.top_k, {-1, 1 << 20});
  take_whole("repeat_last_n", sampling.repeat_last_n, {0, 1 << 16});
  take("typical_p", sampling.typical_p, Options::kTypicalP);
  take("top_n_sigma", sampling.top_n_sigma, Options::kTopNSigma);
  take("xtc_probability", sampling.xtc_probability, Options::kXtcProbability);
  take("xtc_threshold", sampling.xtc_threshold, Options::kXtcThreshold);
  take("dynatemp_range", sampling.dynatemp_range, Options::kDynatempRange);
  take("dynatemp_exponent", sampling.dynatemp_exponent, Options::kDynatempExponent);
  take("dry_multiplier", sampling.dry_multiplier, Options::kDryMultiplier);
  take("dry_base", sampling.dry_base, Options::kDryBase);
  take_whole("dry_allowed_length", sampling.dry_allowed_length, Options::kDryAllowedLength);
  take_whole("dry_penalty_last_n", sampling.dry_penalty_last_n, {-1, 1 << 20});
  take_whole("min_keep", sampling.min_keep, {0, 1 << 20});
  take_whole("mirostat", sampling.mirostat, Options::kMirostat);
  take("mirostat_tau", sampling.mirostat_tau, Options::kMirostatTau);
  take("mirostat_eta", sampling.mirostat_eta, Options::kMirostatEta);
  if (const Json* breakers = fields.find("dry_sequence_breakers")) {
    sampling.dry_sequence_breakers = parse_texts(breakers->is_string() ? parsed_or_null(*breakers) : *breakers, fields,
                                                 "dry_sequence_breakers", SamplingOptions::kMostBreakers);
  }
  if (const Json* samplers = fields.find("samplers")) {
    sampling.samplers = parse_samplers(*samplers, fields, warnings);
  }
  if (const Json* biases = fields.find("logit_bias")) sampling.logit_bias = parse_biases(*biases, fields, model);
  if (const auto value = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    // UINT32_MAX asks for a random seed, as -1 does everywhere; no other given number becomes it.
    sampling.seed =
        *value == -1 ? UINT32_MAX : static_cast<std::uint32_t>(static_cast<std::uint64_t>(*value) % 0xFFFFFFFFU);
  }
  return sampling;
}

}  // namespace

SamplingOptions parse_sampling(const Fields& fields, const Model& model, SamplingOptions sampling,
                               std::vector<std::string>& warnings) {
  // The request's own fields are checked on top of the library's defaults, since the server's may well have no effect
  // here. Clients send all that they know, switched off or with samplers that exclude each other, so fields without an
  // effect are no error. A temperature of 0 has none of them do anything.
  std::vector<std::string> again;
  const SamplingOptions own = with_fields(fields, model, {}, again);
  own.validate();
  try {
    if (own.temperature > 0) own.check_effects();
  } catch (const Error& error) {
    warnings.emplace_back(error.what());
  }
  return with_fields(fields, model, std::move(sampling), warnings);
}

}  // namespace winnow::server
