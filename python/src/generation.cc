#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "winnow/generate.h"
#include "winnow/json_grammar.h"
#include "winnow/log_softmax.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

namespace winnow::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

const char* reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
      return "end-of-text";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context-full";
    case FinishReason::kStopText:
      return "stop-text";
    case FinishReason::kStopped:
      return "stopped";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      break;
  }
  return "error";
}

using Probability = std::pair<Token, double>;

// Natural logarithms of the model's own probabilities: the token's, and the n likeliest, descending.
std::pair<double, std::vector<Probability>> log_probabilities(const Session& session, Token token, std::size_t n) {
  const std::span<const float> logits = session.logits();
  const double sum = log_sum_exp(logits);
  std::vector<Token> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  const auto logit = [&](Token i) { return logits[static_cast<std::size_t>(i)]; };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(n, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](Token a, Token b) { return logit(a) > logit(b); });
  std::vector<Probability> top;
  for (auto at = order.begin(); at != end; ++at) top.emplace_back(*at, logit(*at) - sum);
  return {logit(token) - sum, top};
}

}  // namespace

void bind_generation(nb::module_& module) {
  nb::class_<SamplingOptions>(module, "SamplingOptions")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingOptions::temperature)
      .def_rw("top_k", &SamplingOptions::top_k)
      .def_rw("top_p", &SamplingOptions::top_p)
      .def_rw("min_p", &SamplingOptions::min_p)
      .def_rw("repeat_last_n", &SamplingOptions::repeat_last_n)
      .def_rw("repeat_penalty", &SamplingOptions::repeat_penalty)
      .def_rw("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_rw("presence_penalty", &SamplingOptions::presence_penalty)
      .def_rw("typical_p", &SamplingOptions::typical_p)
      .def_rw("top_n_sigma", &SamplingOptions::top_n_sigma)
      .def_rw("xtc_probability", &SamplingOptions::xtc_probability)
      .def_rw("xtc_threshold", &SamplingOptions::xtc_threshold)
      .def_rw("dynatemp_range", &SamplingOptions::dynatemp_range)
      .def_rw("dynatemp_exponent", &SamplingOptions::dynatemp_exponent)
      .def_rw("dry_multiplier", &SamplingOptions::dry_multiplier)
      .def_rw("dry_base", &SamplingOptions::dry_base)
      .def_rw("dry_allowed_length", &SamplingOptions::dry_allowed_length)
      .def_rw("dry_penalty_last_n", &SamplingOptions::dry_penalty_last_n)
      .def_rw("dry_sequence_breakers", &SamplingOptions::dry_sequence_breakers)
      .def_rw("mirostat_mode", &SamplingOptions::mirostat)
      .def_rw("mirostat_tau", &SamplingOptions::mirostat_tau)
      .def_rw("mirostat_eta", &SamplingOptions::mirostat_eta)
      .def_rw("samplers", &SamplingOptions::samplers)
      .def_rw("seed", &SamplingOptions::seed)
      .def_rw("grammar", &SamplingOptions::grammar)
      .def_rw("grammar_start", &SamplingOptions::grammar_start)
      .def_prop_rw(
          "logit_bias",
          [](const SamplingOptions& options) {
            std::vector<std::pair<Token, float>> biases;
            for (const LogitBias& one : options.logit_bias) biases.emplace_back(one.token, one.bias);
            return biases;
          },
          [](SamplingOptions& options, const std::vector<std::pair<Token, float>>& biases) {
            options.logit_bias.clear();
            for (const auto& [token, bias] : biases) options.logit_bias.push_back({token, bias});
          });
  nb::class_<Sampler>(module, "Sampler")
      .def(
          "__init__",
          [](Sampler* self, std::shared_ptr<Model> model, const SamplingOptions& options) {
            const nb::gil_scoped_release release;
            options.check_effects();
            new (self) Sampler(std::move(model), options);
          },
          "model"_a, "options"_a)
      .def("accept", &Sampler::accept, "token"_a)
      .def_prop_ro("seed", &Sampler::seed);

  nb::class_<Generator>(module, "Generator")
      .def(
          "__init__",
          [](Generator* self, Session& session, Sampler& sampler, int max_tokens, std::vector<std::string> stops,
             std::vector<Token> shown_tokens, bool feed_last) {
            new (self) Generator(session, sampler,
                                 {.max_tokens = max_tokens,
                                  .stops = std::move(stops),
                                  .shown_tokens = std::move(shown_tokens),
                                  .feed_last = feed_last});
          },
          "session"_a, "sampler"_a, nb::kw_only(), "max_tokens"_a = -1, "stops"_a = std::vector<std::string>{},
          "shown_tokens"_a = std::vector<Token>{}, "feed_last"_a = true, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def(
          "next",
          [](Generator& generator) {
            GenerationStep step;
            {
              const nb::gil_scoped_release release;
              step = generator.next();
            }
            return std::tuple{step.token, std::string(step.text), step.is_last ? reason_name(step.reason) : nullptr};
          },
          "(token, text, reason): the reason is None in all steps but the last, which has no token.");

  module.def("json_schema_grammar", &json_schema_grammar, "schema"_a);
  module.def("json_object_grammar", &json_object_grammar);
  module.def("log_probabilities", &log_probabilities, "session"_a, "token"_a, "n"_a);
}

}  // namespace winnow::python
