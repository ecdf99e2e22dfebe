#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "log_probabilities.h"
#include "watch.h"
#include "winnow/embedding.h"
#include "winnow/layer_evidence.h"
#include "winnow/observe.h"
#include "winnow/session.h"

namespace winnow::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

nb::dict statistics_dict(const Session& session) {
  const SessionStatistics statistics = session.statistics();
  nb::dict dict;
  dict["method"] = session.options().eviction.text();
  dict["budget"] = session.options().budget ? nb::cast(session.options().budget->text()) : nb::none();
  dict["prompt_tokens"] = statistics.prompt_tokens;
  dict["decoded_tokens"] = statistics.decoded_tokens;
  dict["prefill_s"] = statistics.prefill_s;
  dict["evict_s"] = statistics.evict_s;
  dict["decode_s"] = statistics.decode_s;
  dict["entries_full"] = statistics.entries_full;
  dict["entries_kept"] = statistics.entries_kept;
  dict["bytes_full"] = statistics.bytes_full;
  dict["bytes_kept"] = statistics.bytes_kept;
  dict["bytes_in_pages"] = statistics.bytes_in_pages;
  dict["recurrent_bytes"] = statistics.recurrent_bytes;
  dict["score_bytes"] = statistics.score_bytes;
  dict["bytes_peak"] = statistics.bytes_peak;
  dict["hidden_bytes"] = statistics.hidden_bytes;
  dict["staging_bytes"] = statistics.staging_bytes;
  dict["raised"] = statistics.raised;
  if (statistics.code_loss) {
    const CodeLoss& loss = *statistics.code_loss;
    nb::dict of_codes;
    of_codes["mean_keys"] = loss.mean_keys;
    of_codes["most_keys"] = loss.most_keys;
    of_codes["head"] = nb::make_tuple(loss.layer, loss.kv_head);
    of_codes["most_values"] = loss.most_values;
    of_codes["n_heads"] = loss.n_heads;
    of_codes["n_too_much"] = loss.n_too_much;
    dict["code_loss"] = of_codes;
  }
  if (statistics.promise) {
    const LossPromise& promise = *statistics.promise;
    nb::dict found;
    found["asked"] = promise.asked;
    found["budget"] = promise.taken.text();
    found["expected"] = promise.expected;
    found["n_tokens"] = promise.n_tokens;
    nb::list tried;
    for (const LossPromise::Trial& trial : promise.tried) tried.append(nb::make_tuple(trial.budget.text(), trial.kl));
    found["tried"] = tried;
    dict["promise"] = found;
  }
  return dict;
}

SessionOptions session_options(const std::optional<std::string>& evict, const std::optional<std::string>& budget,
                               std::int32_t n_ctx, const std::string& key_type, const std::string& value_type,
                               std::int32_t prefill_chunk) {
  SessionOptions options;
  // A budget alone means `auto`, as in the tool.
  if (evict || budget) options.eviction = EvictionOptions::parse(evict.value_or("auto"));
  if (budget) {
    if (!options.eviction.evicts()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a budget has no effect on the full cache: leave it out, or choose what "
                  "to keep as well, e.g. \"snapkv\"");
    }
    options.budget = Budget::parse(*budget);
  } else if (options.eviction.evicts()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the method " + options.eviction.text() +
                    " needs to know how much to keep: give a budget, e.g. \"20%\" (of the "
                    "prompt), \"5%bytes\", 512 (tokens per head), \"64MiB\" or \"kl=0.02\"");
  }
  options.n_ctx = n_ctx;
  options.key_type = parse_entry_type(key_type);
  options.value_type = parse_entry_type(value_type);
  options.prefill_chunk = prefill_chunk;
  return options;
}

// Turns a head's stored keys, [entries][key_dim], into those that the model makes.
void remove_scales(const LayerView& view, int head, std::vector<float>& keys) {
  if (view.key_scales == nullptr) return;
  const auto key_dim = static_cast<std::size_t>(view.shape.key_dim);
  const float* scales = view.key_scales + static_cast<std::size_t>(head) * key_dim;
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] /= scales[i % key_dim];
}

// Returns the rows that a head stores, as float32: [entries][key_dim or value_dim].
Array<float> rows(Session& session, int layer, int head, kernels::RowKind kind) {
  const auto n_entries = static_cast<std::int32_t>(session.positions(layer, head).size());
  const LayerInfo& info = session.model()->info().layers[static_cast<std::size_t>(layer)];
  const auto n_columns = static_cast<std::size_t>(kind == kernels::RowKind::kKey ? info.key_dim : info.value_dim);
  std::vector<float> data(static_cast<std::size_t>(n_entries) * n_columns);
  bool is_seen = false;
  const LayerObserver observer{.needs = {}, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                                 if (view.layer != layer) return;
                                 is_seen = true;
                                 const LayerEvidence evidence(view, session.options().eviction, 0, parallel_for);
                                 if (kind == kernels::RowKind::kKey) {
                                   evidence.read_keys(head, 0, n_entries, data.data());
                                   remove_scales(view, head, data);
                                 } else {
                                   evidence.read_values(head, 0, n_entries, data.data());
                                 }
                               }};
  {
    const nb::gil_scoped_release release;
    observe_stored(session, observer);
  }
  if (!is_seen) {
    throw Error(ErrorCode::kUnsupported, "layer " + std::to_string(layer) +
                                             " is not one that methods cut: only the entries of those can be read");
  }
  return array_of(std::move(data), {static_cast<std::size_t>(n_entries), n_columns});
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<Engine>(module, "Engine")
      .def_static(
          "create",
          [](std::shared_ptr<Model> model, int n_threads, std::size_t kv_bytes_limit, int n_batch,
             const std::string& prefill_weights, const std::string& device, int device_layers) {
            const EngineOptions options{.n_threads = n_threads,
                                        .kv_bytes_limit = kv_bytes_limit,
                                        .n_batch = n_batch,
                                        .prefill_weights = parse_prefill_weights(prefill_weights),
                                        .device = device,
                                        .device_layers = device_layers};
            const nb::gil_scoped_release release;
            return Engine::create(std::move(model), options);
          },
          "model"_a, "n_threads"_a = 0, "kv_bytes_limit"_a = 0, "n_batch"_a = 0, "prefill_weights"_a = "auto",
          "device"_a = "cpu", "device_layers"_a = -1)
      .def(
          "open",
          [](Engine& engine, const std::optional<std::string>& evict, const std::optional<std::string>& budget,
             std::int32_t n_ctx, const std::string& key_type, const std::string& value_type, std::int32_t prefill_chunk,
             bool question_aware) {
            SessionOptions options = session_options(evict, budget, n_ctx, key_type, value_type, prefill_chunk);
            options.question_aware = question_aware;
            const nb::gil_scoped_release release;
            return engine.open(options);
          },
          "evict"_a.none(), "budget"_a.none(), "n_ctx"_a = 0, "key_type"_a = "f16", "value_type"_a = "f16",
          "prefill_chunk"_a = 0, "question_aware"_a = false)
      .def("load_session", &Engine::load_session, "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "decode",
          [](Engine& engine, const std::vector<Session*>& sessions, const std::vector<Token>& tokens) {
            if (sessions.size() != tokens.size()) {
              throw Error(ErrorCode::kInvalidArgument, "a step takes one token for every session");
            }
            engine.decode(sessions, tokens);
          },
          "sessions"_a, "tokens"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "embed",
          [](Engine& engine, const std::vector<Token>& tokens, const std::optional<std::string>& pooling,
             bool normalise, std::int32_t n_ctx, nb::object on_progress) {
            Watch watch(std::move(on_progress));
            EmbeddingOptions options{.is_normalised = normalise, .n_ctx = n_ctx, .on_progress = watch.callback()};
            if (pooling) options.pooling = parse_pooling(*pooling);
            std::vector<float> embedding;
            watch.run([&] { embedding = embed(engine, tokens, options); });
            return embedding;
          },
          "tokens"_a, "pooling"_a.none(), "normalise"_a, "n_ctx"_a, "on_progress"_a.none() = nb::none())
      .def_prop_ro("n_threads", &Engine::n_threads)
      .def_prop_ro("device", &Engine::device)
      .def_prop_ro("memory", [](const Engine& engine) {
        const MemoryStatistics memory = engine.memory();
        nb::dict dict;
        dict["kv_bytes_in_use"] = memory.kv_bytes_in_use;
        dict["kv_bytes_peak"] = memory.kv_bytes_peak;
        dict["kv_bytes_resident"] = memory.kv_bytes_resident;
        dict["kv_bytes_limit"] = memory.kv_bytes_limit;
        dict["graph_bytes"] = memory.graph_bytes;
        return dict;
      });

  nb::class_<Session>(module, "Session")
      .def(
          "prefill",
          [](Session& session, const std::vector<Token>& tokens, nb::object on_progress) {
            Watch watch(std::move(on_progress));
            watch.run([&] { session.prefill(tokens, {.on_progress = watch.callback()}); });
          },
          "tokens"_a, "on_progress"_a.none() = nb::none())
      .def(
          "prefill_scored",
          [](Session& session, const std::vector<Token>& tokens, std::size_t n, nb::object on_progress) {
            std::vector<Probabilities> scores;
            Watch watch(std::move(on_progress));
            PrefillOptions options{.on_progress = watch.callback(),
                                   .on_logits = [&](std::int32_t position, std::span<const float> logits) {
                                     const std::size_t next = static_cast<std::size_t>(position) + 1;
                                     if (next < tokens.size()) {
                                       scores.push_back(log_probabilities(logits, tokens[next], n));
                                     }
                                   }};
            watch.run([&] { session.prefill(tokens, options); });
            return scores;
          },
          "The same for an empty session; gives of every token but the first its logarithmic probability, and the n "
          "likeliest ones.",
          "tokens"_a, "n"_a, "on_progress"_a.none() = nb::none())
      .def(
          "append",
          [](Session& session, const std::vector<Token>& tokens, nb::object on_progress) {
            Watch watch(std::move(on_progress));
            watch.run([&] { session.append(tokens, {.on_progress = watch.callback()}); });
          },
          "tokens"_a, "on_progress"_a.none() = nb::none())
      .def("decode", &Session::decode, "token"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "logits",
          [](const Session& session) {
            const std::span<const float> logits = session.logits();
            return array_of(std::vector<float>(logits.begin(), logits.end()), {logits.size()});
          },
          "After the last token fed: float32 [n_vocab].")
      .def("fork", &Session::fork, nb::call_guard<nb::gil_scoped_release>())
      .def("save", &Session::save, "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("n_tokens", &Session::n_tokens)
      .def_prop_ro("n_ctx", [](const Session& session) { return session.options().n_ctx; })
      .def_prop_ro("evicts", [](const Session& session) { return session.options().eviction.evicts(); })
      .def_prop_ro("tokens",
                   [](const Session& session) {
                     const std::span<const Token> tokens = session.tokens();
                     return std::vector<Token>(tokens.begin(), tokens.end());
                   })
      .def_prop_ro("statistics", &statistics_dict)
      .def_prop_ro("kept", [](const Session& session) { return session.statistics().kept; })
      .def(
          "positions",
          [](const Session& session, int layer, int head) {
            std::vector<std::int32_t> positions = session.positions(layer, head);
            const std::size_t n = positions.size();
            return array_of(std::move(positions), {n});
          },
          "layer"_a, "head"_a)
      .def(
          "keys",
          [](Session& session, int layer, int head) { return rows(session, layer, head, kernels::RowKind::kKey); },
          "layer"_a, "head"_a)
      .def(
          "values",
          [](Session& session, int layer, int head) { return rows(session, layer, head, kernels::RowKind::kValue); },
          "layer"_a, "head"_a);
}

}  // namespace winnow::python
