#include "bind_evidence.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "winnow/error.h"

namespace winnow::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

struct WindowName {
  const char* name;
  WindowColumn column;
};
constexpr WindowName kWindowNames[] = {{"window_mean", kWindowMean},
                                       {"window_m2", kWindowM2},
                                       {"window_max", kWindowMax},
                                       {"window_last", kWindowLast},
                                       {"window_entropy", kWindowEntropy}};

struct NeedName {
  const char* name;
  bool Needed::*need;
};
constexpr NeedName kNeedNames[] = {{"window_queries", &Needed::window_queries},
                                   {"query_moments", &Needed::query_moments},
                                   {"all_queries", &Needed::all_queries},
                                   {"log_sum_exp", &Needed::log_sum_exp},
                                   {"reference_queries", &Needed::reference_queries},
                                   {"output_projection", &Needed::output_projection}};

LayerEvidence& layer_of(const Evidence& evidence) {
  if (evidence.layer != nullptr) return *evidence.layer;
  throw Error(ErrorCode::kInvalidArgument, "the evidence of a layer is there while the scorer '" + evidence.scorer +
                                               "' is called, and not behind it: keep the arrays that it gives");
}

// Returns the layer, for evidence that has to be saved while the layer runs; throws Error(kInvalidArgument) if the
// scorer did not ask for it.
LayerEvidence& layer_with(const Evidence& evidence, const char* name, bool is_needed) {
  LayerEvidence& layer = layer_of(evidence);
  if (is_needed) return layer;
  throw Error(ErrorCode::kInvalidArgument,
              "the scorer '" + evidence.scorer + "' reads " + name + " without saying so: add it to the list `needs`");
}

int checked_head(const LayerEvidence& layer, int head) {
  if (head >= 0 && head < layer.n_kv_head()) return head;
  throw Error(ErrorCode::kInvalidArgument,
              "there is no KV head " + std::to_string(head) + ": the layer has " + std::to_string(layer.n_kv_head()));
}

std::size_t at(int i) { return static_cast<std::size_t>(i); }

template <typename T>
Array<T> copy_of(const T* data, std::initializer_list<std::size_t> shape) {
  std::size_t n = data == nullptr ? 0 : 1;
  for (const std::size_t size : shape) n *= size;
  if (n == 0) return array_of(std::vector<T>(), {0});
  return array_of(std::vector<T>(data, data + n), shape);
}

template <typename Count>
Array<std::int32_t> of_heads(const Evidence& evidence, const Count& count) {
  const LayerEvidence& layer = layer_of(evidence);
  std::vector<std::int32_t> counts;
  for (int h = 0; h < layer.n_kv_head(); ++h) counts.push_back(count(layer, h));
  return array_of(std::move(counts), {at(layer.n_kv_head())});
}

Array<float> rows(const Evidence& evidence, int head, bool are_keys) {
  const LayerEvidence& layer = layer_of(evidence);
  const std::int32_t n = layer.n_entries(checked_head(layer, head));
  const int dim = are_keys ? layer.layer().shape.key_dim : layer.layer().shape.value_dim;
  std::vector<float> data(at(n) * at(dim));
  {
    const nb::gil_scoped_release release;
    if (are_keys) {
      layer.read_keys(head, 0, n, data.data());
    } else {
      layer.read_values(head, 0, n, data.data());
    }
  }
  return array_of(std::move(data), {at(n), at(dim)});
}

template <auto Column>
Array<float> window_column(const Evidence& evidence, const char* name, WindowColumn bit, int head) {
  LayerEvidence& layer = layer_with(evidence, name, (evidence.needed.window_columns & bit) != 0);
  checked_head(layer, head);
  const WindowStatistics* window = nullptr;
  {
    const nb::gil_scoped_release release;
    window = &layer.window(evidence.options->window);
  }
  return array_of((window->*Column)[at(head)], {at(layer.n_group()), at(layer.n_prefix(head))});
}

// Returns the head's row of one of the tables [n_kv_head][n] that LayerEvidence computes.
template <auto Table>
Array<float> table_row(LayerEvidence& layer, int head) {
  checked_head(layer, head);
  const std::vector<std::vector<float>>* table = nullptr;
  {
    const nb::gil_scoped_release release;
    table = &(layer.*Table)();
  }
  const std::vector<float>& row = (*table)[at(head)];
  return array_of(row, {row.size()});
}

nb::dict options_dict(const Evidence& evidence) {
  layer_of(evidence);
  nb::dict dict;
  for (const std::string& name : evidence.options->used_options()) dict[name.c_str()] = evidence.options->get(name);
  return dict;
}

}  // namespace

void Needed::add(const std::string& name) {
  std::string all;
  for (const WindowName& window : kWindowNames) {
    if (name == window.name) {
      window_columns |= window.column;
      return;
    }
    all += std::string(window.name) + ", ";
  }
  for (const NeedName& need : kNeedNames) {
    if (name == need.name) {
      this->*need.need = true;
      return;
    }
    all += std::string(need.name) + ", ";
  }
  throw Error(ErrorCode::kInvalidArgument, "a scorer cannot need '" + name + "', only " +
                                               all.substr(0, all.size() - 2) +
                                               "; keys, values, positions and their norms are there without");
}

EvidenceNeeds Needed::needs(const EvictionOptions& options) const {
  return {.window_rows = window_queries || window_columns != 0 ? options.window : 0,
          .log_sum_exp = log_sum_exp,
          .all_queries = all_queries,
          .query_moments = query_moments,
          .output_projection = output_projection,
          .reference_rows = reference_queries,
          .window_columns = window_columns};
}

void bind_evidence(nb::module_& module) {
  nb::class_<Evidence>(module, "LayerEvidence",
                       "What a scorer looks at: one layer, while it is called. Arrays are the caller's own.")
      .def_prop_ro(
          "layer", [](const Evidence& e) { return layer_of(e).layer().layer; }, "Index of the layer.")
      .def_prop_ro(
          "n_tokens", [](const Evidence& e) { return layer_of(e).layer().n_tokens; },
          "Tokens of the sequence, those whose entries were dropped included.")
      .def_prop_ro(
          "n_head", [](const Evidence& e) { return layer_of(e).layer().n_head; }, "Query heads.")
      .def_prop_ro(
          "n_kv_head", [](const Evidence& e) { return layer_of(e).n_kv_head(); }, "KV heads.")
      .def_prop_ro(
          "n_group", [](const Evidence& e) { return layer_of(e).n_group(); },
          "Query heads of a KV head: those of KV head h are h * n_group to (h + 1) * n_group - 1.")
      .def_prop_ro(
          "scale", [](const Evidence& e) { return layer_of(e).layer().shape.spec.scale; },
          "What a product of query and key is multiplied by before the softmax.")
      .def_prop_ro(
          "n_entries",
          [](const Evidence& e) {
            return of_heads(e, [](const LayerEvidence& layer, int h) { return layer.n_entries(h); });
          },
          nb::rv_policy::automatic, "Stored entries: int32 [n_kv_head].")
      .def_prop_ro(
          "n_prefix",
          [](const Evidence& e) {
            return of_heads(e, [](const LayerEvidence& layer, int h) { return layer.n_prefix(h); });
          },
          nb::rv_policy::automatic, "Of these, the ones before the window, which get a score: int32 [n_kv_head].")
      .def_prop_ro("options", &options_dict, "The method's options, as text.")
      .def(
          "positions",
          [](const Evidence& e, int head) {
            const LayerEvidence& layer = layer_of(e);
            std::vector<std::int32_t> positions = layer.positions(checked_head(layer, head));
            const std::size_t n = positions.size();
            return array_of(std::move(positions), {n});
          },
          "head"_a, "Of a head's entries, ascending: int32 [n_entries].")
      .def(
          "keys", [](const Evidence& e, int head) { return rows(e, head, true); }, "head"_a,
          "Rotated by their positions: float32 [n_entries][key_dim]. If a model's keys have biases, keys and queries "
          "are "
          "balanced: a pair of dimensions is multiplied by a power of two, and the queries' by its inverse.")
      .def(
          "values", [](const Evidence& e, int head) { return rows(e, head, false); }, "head"_a,
          "float32 [n_entries][value_dim].")
      .def(
          "value_l1_norms",
          [](const Evidence& e, int head) { return table_row<&LayerEvidence::value_l1_norms>(layer_of(e), head); },
          "head"_a, "Sums of the values' magnitudes: float32 [n_entries].")
      .def(
          "projected_value_norms",
          [](const Evidence& e, int head) {
            LayerEvidence& layer = layer_with(e, "output_projection", e.needed.output_projection);
            return table_row<&LayerEvidence::projected_value_norms>(layer, head);
          },
          "head"_a,
          "L1 norms of the values behind the output projection, CriticalKV's r: float32 [n_entries]. Needs "
          "output_projection.")
      .def(
          "reference_rms",
          [](const Evidence& e, int head) {
            LayerEvidence& layer = layer_with(e, "reference_queries", e.needed.reference_queries);
            return table_row<&LayerEvidence::reference_rms>(layer, head);
          },
          "head"_a,
          "Root of the mean of the squared attention that reference queries pay: float32 [n_prefix]. Needs "
          "reference_queries.")
      .def_prop_ro(
          "window_queries",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "window_queries", e.needed.window_queries).layer();
            return copy_of(view.window_q, {at(view.n_window_rows), at(view.n_head), at(view.shape.key_dim)});
          },
          nb::rv_policy::automatic, "The last tokens' queries, rotated: float32 [rows][n_head][key_dim].")
      .def_prop_ro(
          "all_queries",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "all_queries", e.needed.all_queries).host_view();
            return copy_of(view.all_q, {at(view.n_query_rows), at(view.n_head), at(view.shape.key_dim)});
          },
          nb::rv_policy::automatic,
          "The queries of the last so many tokens, all of them in a first prompt, rotated: float32 "
          "[rows][n_head][key_dim].")
      .def_prop_ro(
          "log_sum_exp",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "log_sum_exp", e.needed.log_sum_exp).layer();
            return copy_of(view.log_sum_exp, {at(view.n_query_rows), at(view.n_head)});
          },
          nb::rv_policy::automatic, "Of the same rows, over the entries that each sees: float32 [rows][n_head].")
      .def_prop_ro(
          "reference_queries",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "reference_queries", e.needed.reference_queries).layer();
            return copy_of(view.reference_q, {at(view.n_reference_rows), at(view.n_head), at(view.shape.key_dim)});
          },
          nb::rv_policy::automatic,
          "Rows spread over the prompt, rotated as if they followed it: float32 [rows][n_head][key_dim].")
      .def_prop_ro(
          "query_mean",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "query_moments", e.needed.query_moments).layer();
            return copy_of(view.query_mean, {at(view.n_head), at(view.shape.key_dim)});
          },
          nb::rv_policy::automatic, "Of the queries before rotation: float64 [n_head][key_dim]. Needs query_moments.")
      .def_prop_ro(
          "query_covariance",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "query_moments", e.needed.query_moments).layer();
            return copy_of(view.query_covariance, {at(view.n_head), at(view.shape.key_dim), at(view.shape.key_dim)});
          },
          nb::rv_policy::automatic, "Likewise: float64 [n_head][key_dim][key_dim]. Needs query_moments.")
      .def_prop_ro(
          "output_projection",
          [](const Evidence& e) {
            const LayerView& view = layer_with(e, "output_projection", e.needed.output_projection).host_view();
            return copy_of(view.w_o, {at(view.n_head), at(view.shape.value_dim), at(view.n_embd)});
          },
          nb::rv_policy::automatic, "W_O of every query head: float32 [n_head][value_dim][n_embd].")
      .def(
          "window_mean",
          [](const Evidence& e, int head) {
            return window_column<&WindowStatistics::mean>(e, "window_mean", kWindowMean, head);
          },
          "head"_a,
          "Attention of the window's rows on the entries before it, mean over the rows: float32 "
          "[n_group][n_prefix].")
      .def(
          "window_m2",
          [](const Evidence& e, int head) {
            return window_column<&WindowStatistics::m2>(e, "window_m2", kWindowM2, head);
          },
          "head"_a, "Likewise, sum of the squared distances from the mean.")
      .def(
          "window_max",
          [](const Evidence& e, int head) {
            return window_column<&WindowStatistics::max>(e, "window_max", kWindowMax, head);
          },
          "head"_a, "Likewise, the largest of the rows.")
      .def(
          "window_last",
          [](const Evidence& e, int head) {
            return window_column<&WindowStatistics::last>(e, "window_last", kWindowLast, head);
          },
          "head"_a, "Likewise, of the last row.")
      .def(
          "window_entropy",
          [](const Evidence& e, int head) {
            LayerEvidence& layer = layer_with(e, "window_entropy", (e.needed.window_columns & kWindowEntropy) != 0);
            const std::vector<double>& row = layer.window(e.options->window).entropy[at(checked_head(layer, head))];
            return array_of(row, {row.size()});
          },
          "head"_a, "Of the window's attention: float64 [n_group].");
}

}  // namespace winnow::python
