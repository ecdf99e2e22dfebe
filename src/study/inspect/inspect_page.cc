#include "study/inspect/inspect_page.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "charts/page.h"
#include "charts/svg.h"
#include "study/inspect/figures.h"
#include "study/inspect/kept_data.h"
#include "study/inspect/script.h"

namespace winnow {
namespace {

constexpr const char* kStyle = R"css(
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
.side{min-width:0}
.side select{width:100%;margin-bottom:.5rem}
.map svg{display:block;width:100%;height:auto;background:var(--raised);border:1px solid var(--grid)}
.read{min-height:3em;font-size:.875rem;color:var(--muted);margin:.25rem 0}
.doc{white-space:pre-wrap;overflow-wrap:anywhere;overflow-y:auto;max-height:28rem;border:1px solid var(--grid);
padding:.5rem .75rem;border-radius:.3rem;font-size:.9rem;line-height:1.6;cursor:default}
.doc i{font-style:normal;border-radius:.15rem}
.doc i.at{outline:2px solid var(--accent)}
.holders svg{display:block;max-width:100%;height:auto;margin-top:.25rem}
.key{display:flex;flex-wrap:wrap;gap:.25rem;align-items:center;font-size:.875rem;color:var(--muted)}
.key i{font-style:normal;padding:0 .5rem;border-radius:.15rem}
)css";

std::string significant(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", 100 * part);
  return text;
}

template <typename Values>
double layer_mean(const CutOutcome& cut, const Values& values) {
  double sum = 0;
  std::size_t n_layers = 0;  // layers that are cut
  for (const LayerOutcome& layer : cut.layers) {
    if (layer.kept.empty()) continue;
    ++n_layers;
    const std::vector<double>& of_layer = values(layer);
    sum += std::accumulate(of_layer.begin(), of_layer.end(), 0.0) / static_cast<double>(of_layer.size());
  }
  return sum / static_cast<double>(n_layers);
}

void add_summary(const Analysis& analysis, charts::Page& page) {
  const ModelInfo& model = analysis.model;
  const CutOutcome& first = analysis.cuts.front();
  const std::vector<int> n_kv_head = model.dimension(&LayerInfo::n_kv_head);
  const bool is_all_cut = std::all_of(model.layers.begin(), model.layers.end(),
                                      [](const LayerInfo& layer) { return layer.is_evictable(); });
  page.paragraph(
      model.name + ": " + std::to_string(model.n_layer()) + " layers" +
      (n_kv_head.size() == 1 ? " of " + std::to_string(n_kv_head.front()) + " KV heads" : "") + ". The text has " +
      std::to_string(analysis.context.size()) + " tokens; the full cache has an entry for each token in each of the " +
      std::to_string(model.n_cut_heads()) + " heads" + (is_all_cut ? "" : " of the layers that methods cut") + ", " +
      std::to_string(first.entries_full) + " in all. What follows was measured while " +
      (analysis.is_answer ? "the full cache's answer of " : "the text's own next ") +
      std::to_string(analysis.continuation.size()) + " tokens " + (analysis.is_answer ? "was" : "were") +
      " fed after each cut; the full cache's perplexity on them is " + significant(first.next.perplexity_full) + ".");
  std::vector<std::vector<std::string>> rows;
  for (const CutOutcome& cut : analysis.cuts) {
    rows.push_back({cut.method, cut.budget, std::to_string(cut.entries_kept),
                    percent(static_cast<double>(cut.entries_kept) / static_cast<double>(cut.entries_full)),
                    significant(cut.next.kl_mean), significant(cut.next.perplexity), percent(cut.next.agreement),
                    percent(layer_mean(
                        cut, [](const LayerOutcome& l) -> const auto& { return l.losses.mass; })),
                    percent(layer_mean(
                        cut, [](const LayerOutcome& l) -> const auto& { return l.future_mass; })),
                    percent(cut.oracle_loss), percent(cut.recall()), percent(cut.optimality_gap())});
  }
  page.table({"method", "budget", "entries", "kept %", "KL", "perplexity", "same token %", "mass %", "later mass %",
              "importance lost %", "recall %", "gap %"},
             rows);
  page.paragraph(
      "KL: how far the next tokens' probabilities move from the full cache's, nats. Mass: the part of the last row's "
      "attention, and of the following tokens', on entries that were kept. Importance lost: LU-KV's loss, of which the "
      "gap could be avoided with the same number of entries. Means over layers and heads.");
}

// Adds the two columns that inspect.js fills.
void add_sides(const Analysis& analysis, charts::Page& page) {
  std::string options;
  for (std::size_t c = 0; c < analysis.cuts.size(); ++c) {
    options +=
        "<option value=\"" + std::to_string(c) + "\">" + charts::escaped(cut_name(analysis.cuts[c])) + "</option>";
  }
  std::string html = "<div class=\"sides\">\n";
  for (const char* side : {"left", "right"}) {
    const std::string name = side;
    html += "<div class=\"side\" id=\"" + name + "\"><select aria-label=\"method on the " + name + "\">" + options +
            "</select><div class=\"map\"></div><div class=\"read\"></div><div class=\"holders\"></div>"
            "<div class=\"doc\" tabindex=\"0\" aria-label=\"the text\"></div></div>\n";
  }
  page.raw(html + "</div>\n<noscript><p class=\"note\">The maps and the shaded text need scripts.</p></noscript>\n");
}

}  // namespace

std::string inspect_page(const Analysis& analysis) {
  charts::Page page("What the cache keeps");
  page.style(kStyle);
  page.section("Summary");
  add_summary(analysis, page);

  page.section("Entries kept");
  page.paragraph(
      "A row for each KV head, layer 0 at the top; the text runs from left to right. The darker, the more of these "
      "tokens the head still holds. Below, the text: the darker a token, the more heads hold it. Point at a token, or "
      "touch it, to see which.");
  page.raw("<div class=\"key\" id=\"key\"></div>\n");
  add_sides(analysis, page);

  page.section("Budgets");
  page.paragraph(
      "How the methods share their budgets among layers and heads, next to what guides them: the attention of the "
      "text's last " +
      std::to_string(analysis.window) + " tokens, with the full cache.");
  page.figures(layer_budget_figures(analysis));
  page.figures(head_budget_figures(analysis));

  page.section("What it costs");
  page.paragraph(
      "By layer: the attention that the text's last row keeps, and how much its output changes in each layer "
      "by itself, with the full cache below it.");
  page.figures(loss_figures(analysis));

  page.section("What later tokens need");
  page.figures(future_figures(analysis));

  page.section("How concentrated attention is");
  page.figures(concentration_figures(analysis));

  page.data("kept", kept_data(analysis));
  page.script(kInspectScript);
  return page.html();
}

}  // namespace winnow
