#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "log_probabilities.h"
#include "winnow/error.h"
#include "winnow/generate.h"
#include "winnow/json_grammar.h"
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

using Logits = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Wraps a Python function of logits (float32 [n_vocab], its own copy) that returns those to choose from, or None to end
// the answer.
std::function<bool(std::span<float>)> before_choice(nb::object function) {
  if (function.is_none()) return {};
  return [function = std::move(function)](std::span<float> logits) {
    const nb::gil_scoped_acquire acquire;
    const nb::object made = function(array_of(std::vector<float>(logits.begin(), logits.end()), {logits.size()}));
    if (made.is_none()) return false;
    const auto changed = nb::cast<Logits>(made);
    if (changed.size() != logits.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "of " + std::to_string(logits.size()) + " logits " + std::to_string(changed.size()) + " came back");
    }
    std::copy_n(changed.data(), logits.size(), logits.begin());
    return true;
  };
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
      .def("n_looked_back", &SamplingOptions::n_looked_back, "n_tokens"_a)
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
      .def(
          "sample",
          [](Sampler& sampler, const Logits& logits) {
            const nb::gil_scoped_release release;
            return sampler.sample({logits.data(), logits.size()});
          },
          "logits"_a)
      .def_prop_ro("seed", &Sampler::seed);

  nb::class_<Generator>(module, "Generator")
      .def(
          "__init__",
          [](Generator* self, Session& session, Sampler& sampler, int max_tokens, std::vector<std::string> stops,
             std::vector<Token> shown_tokens, bool feed_last, nb::object function) {
            new (self) Generator(session, sampler,
                                 {.max_tokens = max_tokens,
                                  .stops = std::move(stops),
                                  .shown_tokens = std::move(shown_tokens),
                                  .feed_last = feed_last,
                                  .before_choice = before_choice(std::move(function))});
          },
          "session"_a, "sampler"_a, nb::kw_only(), "max_tokens"_a = -1, "stops"_a = std::vector<std::string>{},
          "shown_tokens"_a = std::vector<Token>{}, "feed_last"_a = true, "before_choice"_a.none() = nb::none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
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
  module.def(
      "log_probabilities",
      [](const Session& session, Token token, std::size_t n) { return log_probabilities(session.logits(), token, n); },
      "session"_a, "token"_a, "n"_a);
}

}  // namespace winnow::python
