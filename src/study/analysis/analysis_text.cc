#include "study/analysis/analysis_text.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/count_raised.h"
#include "winnow/version.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kNumber = "%.7g";

std::string number_text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, kNumber, value);
  return buffer;
}

double rounded(double value) { return std::strtod(number_text(value).c_str(), nullptr); }

OrderedJson rounded(const std::vector<double>& values) {
  OrderedJson json = OrderedJson::array();
  for (const double value : values) json.push_back(rounded(value));
  return json;
}

// Returns the losses by the types' names: [share].
OrderedJson by_bytes_json(const LossByBytes& losses) {
  OrderedJson json = OrderedJson::object();
  for (std::size_t t = 0; t < kByteTypes.size(); ++t) {
    json[std::string(entry_type_name(kByteTypes[t]))] =
        rounded(std::vector<double>(losses[t].begin(), losses[t].end()));
  }
  return json;
}

OrderedJson attention_json(const LayerAttention& layer) {
  OrderedJson concentration = OrderedJson::array(), by_bytes = OrderedJson::array();
  for (const LossByBytes& head : layer.by_bytes) by_bytes.push_back(by_bytes_json(head));
  for (const std::vector<double>& head : layer.concentration) concentration.push_back(rounded(head));
  return {{"dispersion", rounded(layer.dispersion)},           {"shift", rounded(layer.shift)},
          {"head_dispersion", rounded(layer.head_dispersion)}, {"head_shift", rounded(layer.head_shift)},
          {"lava_entropy", rounded(layer.lava_entropy)},       {"concentration", std::move(concentration)},
          {"importance", rounded(layer.importance)},           {"by_bytes", std::move(by_bytes)}};
}

OrderedJson outcome_json(const LayerOutcome& layer) {
  const LayerLosses& losses = layer.losses;
  OrderedJson json = {{"kept", layer.kept},
                      {"loss_layer", rounded(losses.loss_layer)},
                      {"ada_eps", rounded(losses.ada_eps)},
                      {"lava_bound", rounded(losses.lava_bound)},
                      {"loss_head", rounded(losses.loss_head)},
                      {"theta", rounded(losses.theta)}};
  json["theta_hat"] = losses.theta_hat.empty() ? OrderedJson() : rounded(losses.theta_hat);
  json["mass"] = rounded(losses.mass);
  json["oracle_loss"] = rounded(layer.loss);
  json["least_loss"] = rounded(layer.least_loss);
  json["recall"] = rounded(layer.recall);
  json["future_mass"] = rounded(layer.future_mass);
  json["output_error"] = rounded(layer.output_error);
  return json;
}

OrderedJson cut_json(const CutOutcome& cut) {
  OrderedJson layers = OrderedJson::array();
  for (const LayerOutcome& layer : cut.layers) layers.push_back(outcome_json(layer));
  const NextTokens& next = cut.next;
  OrderedJson json = {{"method", cut.method},
                      {"budget", cut.budget},
                      {"entries_kept", cut.entries_kept},
                      {"entries_full", cut.entries_full},
                      {"bytes_kept", cut.bytes_kept},
                      {"output_error", rounded(cut.output_error)},
                      {"oracle",
                       {{"loss", rounded(cut.oracle_loss)},
                        {"least_loss", rounded(cut.least_loss)},
                        {"best_loss", rounded(cut.best_loss)},
                        {"best_allocation", rounded(cut.best_allocation)},
                        {"recall", rounded(cut.recall())},
                        {"optimality_gap", rounded(cut.optimality_gap())},
                        {"allocation_gap", rounded(cut.allocation_gap())}}},
                      {"next",
                       {{"n", next.n},
                        {"kl_mean", rounded(next.kl_mean)},
                        {"kl_max", rounded(next.kl_max)},
                        {"perplexity", rounded(next.perplexity)},
                        {"perplexity_full", rounded(next.perplexity_full)},
                        {"agreement", rounded(next.agreement)},
                        {"first_logits_l1", rounded(next.first_logits_l1)}}},
                      {"layers", std::move(layers)}};
  if (count_raised(cut.raised) > 0) json["raised"] = cut.raised;
  return json;
}

// Returns a text, in quotes if it needs them.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Returns a dimension of the layers: a number, or a list if they differ.
OrderedJson one_or_all(const std::vector<int>& values) {
  return values.size() == 1 ? OrderedJson(values.front()) : OrderedJson(values);
}

}  // namespace

OrderedJson analysis_json(const Analysis& analysis) {
  const ModelInfo& model = analysis.model;
  OrderedJson layers = OrderedJson::array(), cuts = OrderedJson::array();
  for (const LayerAttention& layer : analysis.layers) layers.push_back(attention_json(layer));
  for (const CutOutcome& cut : analysis.cuts) cuts.push_back(cut_json(cut));
  return {{"tool", kVersion},
          {"model",
           {{"name", model.name},
            {"fingerprint", UtilityProfile::model_text(model.fingerprint)},
            {"n_layer", model.n_layer()},
            {"n_head", one_or_all(model.dimension(&LayerInfo::n_head))},
            {"n_kv_head", one_or_all(model.dimension(&LayerInfo::n_kv_head))}}},
          {"context_tokens", analysis.context.size()},
          {"question_tokens", analysis.question.size()},
          {"continuation", {{"tokens", analysis.continuation.size()}, {"is_answer", analysis.is_answer}}},
          {"window", analysis.window},
          {"concentration_shares", kConcentrationShares},
          {"bytes_full", analysis.bytes_full},
          {"byte_shares", kByteShares},
          {"by_bytes", by_bytes_json(analysis.by_bytes)},
          {"attention", std::move(layers)},
          {"cuts", std::move(cuts)},
          {"violations", find_violations(analysis)}};
}

std::string analysis_csv(const Analysis& analysis) {
  std::string text =
      "method,budget,layer,kv_head,head,kept,loss_head,theta,theta_hat,mass,loss_layer,ada_eps,lava_bound,oracle_loss,"
      "least_loss,recall,future_mass,dispersion,shift,lava_entropy,output_error\n";
  for (const CutOutcome& cut : analysis.cuts) {
    for (std::size_t l = 0; l < cut.layers.size(); ++l) {
      const LayerOutcome& layer = cut.layers[l];
      const LayerAttention& attention = analysis.layers[l];
      for (std::size_t head = 0; head < layer.losses.loss_head.size(); ++head) {
        const std::size_t kv_head = head * layer.kept.size() / layer.losses.loss_head.size();
        text += csv_cell(cut.method) + "," + csv_cell(cut.budget) + "," + std::to_string(l) + "," +
                std::to_string(kv_head) + "," + std::to_string(head) + "," + std::to_string(layer.kept[kv_head]);
        const auto add = [&](double value) { text += "," + number_text(value); };
        add(layer.losses.loss_head[head]);
        add(layer.losses.theta[head]);
        if (layer.losses.theta_hat.empty()) {
          text += ",";
        } else {
          add(layer.losses.theta_hat[head]);
        }
        for (const double value :
             {layer.losses.mass[head], layer.losses.loss_layer, layer.losses.ada_eps, layer.losses.lava_bound,
              layer.loss[kv_head], layer.least_loss[kv_head], layer.recall[kv_head], layer.future_mass[kv_head],
              attention.dispersion, attention.shift, attention.lava_entropy, layer.output_error[kv_head]}) {
          add(value);
        }
        text += "\n";
      }
    }
  }
  return text;
}

}  // namespace winnow
