#include "cli/run_report.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/number_text.h"
#include "cli/text_table.h"
#include "engine/code_loss_json.h"
#include "engine/count_raised.h"
#include "engine/promise_json.h"

namespace winnow::cli {
namespace {

double rate(std::int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0.0; }

std::string promise_text(const LossPromise& promise) {
  if (promise.n_tokens == 0) return "promise    kept whole: the prompt is too short to measure what a cut would cost\n";
  return "promise    " + promise.taken.text() + ", which may cost " + fixed_text(promise.expected, 4) +
         " nats a token (measured on the prompt's last " + std::to_string(promise.n_tokens) + ")\n";
}

std::string code_loss_text(const CodeLoss& loss) {
  std::string text = "codes      attention loses " + fixed_text(loss.mean_keys, 4) + " nats a head, most in layer " +
                     std::to_string(loss.layer) + ", head " + std::to_string(loss.kv_head) + ": " +
                     fixed_text(loss.most_keys, 4) + "\n";
  if (loss.n_too_much > 0) {
    text += "warning    " + count_text(loss.n_too_much) + " of " + count_text(loss.n_heads) +
            " heads lose too much with these types: use -ctk or -ctv q8_0\n";
  }
  return text;
}

}  // namespace

std::string run_report_json(const RunReport& report) {
  const SessionStatistics& statistics = report.statistics;
  nlohmann::ordered_json json;
  json["prompt_tokens"] = statistics.prompt_tokens;
  json["generated_tokens"] = report.token_ids.size();
  json["text"] = report.text;
  json["token_ids"] = report.token_ids;
  json["kv"] = {{"method", report.method},
                {"entries_full", statistics.entries_full},
                {"entries_kept", statistics.entries_kept},
                {"bytes_full", statistics.bytes_full},
                {"bytes_kept", statistics.bytes_kept},
                {"bytes_peak", statistics.bytes_peak},
                {"kept", statistics.kept}};
  if (count_raised(statistics.raised) > 0) json["kv"]["raised"] = statistics.raised;
  if (statistics.promise) json["kv"]["promise"] = promise_json<nlohmann::ordered_json>(*statistics.promise);
  if (statistics.code_loss) json["kv"]["code_loss"] = code_loss_json<nlohmann::ordered_json>(*statistics.code_loss);
  json["timing"] = {{"load_s", report.load_s},
                    {"prefill_s", statistics.prefill_s},
                    {"evict_s", statistics.evict_s},
                    {"ttft_s", report.ttft_s},
                    {"decode_s", statistics.decode_s},
                    {"prefill_tps", rate(statistics.prompt_tokens, statistics.prefill_s)},
                    {"decode_tps", rate(statistics.decoded_tokens, statistics.decode_s)}};
  json["memory"] = {{"rss_peak_bytes", report.rss_peak_bytes},
                    {"hidden_bytes", statistics.hidden_bytes},
                    {"staging_bytes", statistics.staging_bytes}};
  for (const RankMemory& rank : report.ranks) {
    json["ranks"].push_back({{"layers", {rank.first_layer, rank.last_layer}},
                             {"rss_peak_bytes", rank.rss_peak_bytes},
                             {"kv_bytes_peak", rank.kv_bytes_peak}});
  }
  // A line per field: an indented dump would give every number of `kept` its own.
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += text.empty() ? "{\n" : ",\n";
    // Text comes from tokens and may be invalid UTF-8; the report is written anyway.
    const std::string dumped = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    text.append("  \"").append(key).append("\": ").append(dumped);
  }
  return text + "\n}\n";
}

std::string raised_text(std::int64_t n) {
  return count_text(n) + (n == 1 ? " head" : " heads") + " in 8 bits, since the method's types would cost too much";
}

std::string positions_json(const Session& session, const ModelInfo& model) {
  nlohmann::ordered_json json;
  json["n_tokens"] = session.n_tokens();
  nlohmann::ordered_json& layers = json["positions"] = nlohmann::ordered_json::array();
  for (int l = 0; l < model.n_layer(); ++l) {
    nlohmann::ordered_json& heads = layers.emplace_back(nlohmann::ordered_json::array());
    for (int h = 0; h < model.layers[static_cast<std::size_t>(l)].n_kv_head; ++h)
      heads.push_back(session.positions(l, h));
  }
  return json.dump() + "\n";
}

std::string run_report_text(const RunReport& report) {
  const SessionStatistics& statistics = report.statistics;
  const auto generated = static_cast<std::int64_t>(report.token_ids.size());
  TextTable speed({{"", Align::kLeft},
                   {"tokens", Align::kRight},
                   {"seconds", Align::kRight},
                   {"t/s", Align::kRight},
                   {"", Align::kLeft}});
  speed.row({"prompt", count_text(statistics.prompt_tokens), fixed_text(statistics.prefill_s, 2),
             fixed_text(rate(statistics.prompt_tokens, statistics.prefill_s), 1),
             "including " + fixed_text(statistics.evict_s, 2) + " s of eviction"});
  // The last token is sampled but never fed, so the speed counts the fed tokens.
  speed.row({"generated", count_text(generated), fixed_text(statistics.decode_s, 2),
             fixed_text(rate(statistics.decoded_tokens, statistics.decode_s), 1),
             "first token after " + fixed_text(report.ttft_s, 2) + " s, load " + fixed_text(report.load_s, 2) + " s"});
  const auto share_text = [](auto part, auto whole) {
    return whole > 0 ? " (" + fixed_text(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %)"
                     : "";
  };
  std::string text = speed.plain(120);
  text += "KV cache   " + report.method + (report.budget.empty() ? "" : ", budget " + report.budget) + "\n";
  if (statistics.promise) text += promise_text(*statistics.promise);
  text += "kept       " + count_text(statistics.entries_kept) + " of " + count_text(statistics.entries_full) +
          " entries" + share_text(statistics.entries_kept, statistics.entries_full) + ", " +
          bytes_text(statistics.bytes_kept) + " of " + bytes_text(statistics.bytes_full) + " in f16" +
          share_text(statistics.bytes_kept, statistics.bytes_full) + "\n";
  if (const std::int64_t n = count_raised(statistics.raised); n > 0) {
    text += "raised     " + raised_text(n) + "\n";
  }
  if (statistics.code_loss) text += code_loss_text(*statistics.code_loss);
  text += "peak       KV " + bytes_text(statistics.bytes_peak) + ", hidden states " +
          bytes_text(statistics.hidden_bytes) + ", process " + bytes_text(report.rss_peak_bytes) + "\n";
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankMemory& memory = report.ranks[rank];
    text += "rank " + std::to_string(rank) + "     layers " + std::to_string(memory.first_layer) + " to " +
            std::to_string(memory.last_layer - 1) + ", peak KV " + bytes_text(memory.kv_bytes_peak) + ", process " +
            bytes_text(memory.rss_peak_bytes) + "\n";
  }
  return text;
}

std::string kept_entries_text(const SessionStatistics& statistics) {
  std::string text = "kept entries by layer and KV head\n";
  for (std::size_t layer = 0; layer < statistics.kept.size(); ++layer) {
    text += "  ";
    text += std::to_string(layer);
    text += ':';
    for (const std::int32_t kept : statistics.kept[layer]) {
      text += ' ';
      text += std::to_string(kept);
    }
    text += '\n';
  }
  return text;
}

}  // namespace winnow::cli
