#include "eval/report/report.h"

#include <algorithm>
#include <map>
#include <set>

#include "charts/page.h"
#include "eval/report/figures.h"
#include "eval/report/tables.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using Json = nlohmann::json;

constexpr const char* kBrowserStyle = R"css(
.controls{display:flex;flex-wrap:wrap;gap:.5rem;margin:.75rem 0}
.controls label{display:flex;flex-direction:column;font-size:.8rem;color:var(--muted);min-width:0}
.sample{border:1px solid var(--grid);border-radius:.5rem;padding:.5rem .75rem;margin:.75rem 0}
.sample pre,.sample td.answer{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit;margin:.25rem 0;text-align:left}
.sample .dim{color:var(--muted);font-size:.85rem}
.sample td.answer{min-width:14rem}
)css";

constexpr const char* kBrowserHtml = R"html(
<div class="controls" id="controls">
<label>Benchmark and task<select id="task"></select></label>
<label>Method<select id="method"></select></label>
<label>Budget<select id="budget"></select></label>
<label>Show<select id="kind"><option value="">all</option><option value="lost">full cache better</option>
<option value="wrong">score below 1</option></select></label>
<label>Text<input id="text" type="search" placeholder="in question or answer"></label>
</div>
<p id="count" role="status"></p>
<div id="samples"></div>
<p><button type="button" id="more">Show more</button></p>
)html";

constexpr const char* kBrowserScript = R"js(
(() => {
  const data = JSON.parse(document.getElementById('answers').textContent);
  const by = id => document.getElementById(id);
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const fill = (select, first, values) => {
    if (first) select.add(new Option(first, ''));
    for (const value of values) select.add(new Option(value, value));
  };
  const unique = values => [...new Set(values)];
  fill(by('task'), null, unique(data.map(s => s.part)));
  fill(by('method'), 'all', unique(data.flatMap(s => s.answers.map(a => a.method))));
  fill(by('budget'), 'all', unique(data.flatMap(s => s.answers.map(a => a.budget)).filter(b => b)));
  let shown = 10;
  const chosen = sample => {
    const method = by('method').value, budget = by('budget').value, kind = by('kind').value;
    const text = by('text').value.toLowerCase();
    const fulls = sample.answers.filter(other => !other.budget);
    const full = a => fulls.find(other => other.types === a.types) ?? fulls[0];
    return sample.answers.filter(a => (!method || a.method === method) && (!budget || a.budget === budget || !a.budget)
      && (kind !== 'wrong' || a.score < 1) && (kind !== 'lost' || a.score < full(a)?.score)
      && (!text || (sample.question + ' ' + a.text).toLowerCase().includes(text)));
  };
  const draw = () => {
    const list = by('samples');
    list.replaceChildren();
    const matches = data.filter(s => s.part === by('task').value).map(s => [s, chosen(s)]).filter(m => m[1].length);
    by('count').textContent = matches.length + (matches.length === 1 ? ' sample' : ' samples');
    for (const [sample, answers] of matches.slice(0, shown)) {
      const box = make('div', 'sample');
      box.append(make('div', 'dim', sample.id));
      box.append(make('pre', '', sample.question));
      box.append(make('div', 'dim', 'Reference: ' + sample.references.join(' | ')));
      const scroll = make('div', 'scroll'), table = make('table'), body = make('tbody');
      for (const a of answers) {
        const row = make('tr');
        row.append(make('td', 'l', a.method), make('td', '', a.budget || ''),
          make('td', '', a.score === null ? '' : (100 * a.score).toFixed(0)), make('td', 'answer', a.text));
        body.append(row);
      }
      table.append(body);
      scroll.append(table);
      box.append(scroll);
      list.append(box);
    }
    by('more').hidden = matches.length <= shown;
  };
  for (const id of ['task', 'method', 'budget', 'kind', 'text']) {
    by(id).addEventListener('input', () => { shown = 10; draw(); });
  }
  by('more').addEventListener('click', () => { shown += 20; draw(); });
  draw();
})();
)js";

std::vector<std::string> narrow_svgs(const std::vector<Figure>& figures) {
  std::vector<std::string> svgs;
  for (const Figure& figure : figures) svgs.push_back(figure.narrow);
  return svgs;
}

void add_grid(const TextGrid& grid, charts::Page& page) {
  if (!grid.title.empty()) page.heading(grid.title);
  if (!grid.comment.empty()) page.paragraph(grid.comment);
  std::vector<std::vector<std::string>> rows = grid.rows;
  for (std::size_t r = 0; r < grid.strong.size(); ++r) {
    for (std::size_t c = 0; c < grid.strong[r].size(); ++c) {
      if (grid.strong[r][c]) rows[r][c].insert(0, 1, charts::Page::kStrong);
    }
  }
  page.table(grid.columns, rows, grid.n_left);
}

void add_section(const Section& section, const ReportOptions& options, charts::Page& page,
                 std::vector<Figure>& figures) {
  page.section(section.title());
  for (const std::string& warning : section.warnings) page.note(warning);
  for (const auto& [reason, n] : section.failures) page.note("Failed " + std::to_string(n) + " times: " + reason);
  const std::vector<Figure> quality = quality_figures(section, options.by), needles = needle_figures(section),
                            speed = speed_figures(section);
  if (!quality.empty()) page.figure(quality.front().svg, quality.front().narrow);
  for (const TextGrid& grid : {kept_grid(section, options.by), against_grid(section, options.against)}) {
    if (!grid.rows.empty()) add_grid(grid, page);
  }
  add_grid(overview_grid(section), page);
  for (const TextGrid& grid : breakdown_grids(section)) add_grid(grid, page);
  if (!needles.empty()) {
    page.heading("Needles by depth and length");
    page.figures(narrow_svgs(needles));
  }
  for (const TextGrid& grid : comparison_grids(section)) add_grid(grid, page);
  add_grid(cost_grid(section), page);
  std::vector<Figure> further = quality;
  if (!further.empty()) further.erase(further.begin());
  further.insert(further.end(), speed.begin(), speed.end());
  page.figures(narrow_svgs(further));
  for (const auto* some : {&quality, &needles, &speed}) figures.insert(figures.end(), some->begin(), some->end());
}

void check_against(const std::string& against, const Results& results) {
  if (against.empty()) return;
  std::string names;
  for (const Variant& variant : variants_of(results)) {
    if (variant.name() == against) return;
    names += (names.empty() ? "" : "; ") + variant.name();
  }
  throw Error(ErrorCode::kNotFound,
              "there are no answers of '" + against + "' to compare the others with; there are those of: " + names);
}

}  // namespace

std::string answers_json(const Results& results, int n_answers) {
  struct Shown {
    const Result* first;
    std::vector<const Result*> answers;
  };
  using Key = std::tuple<std::string, std::string, std::string, std::string, int>;
  std::map<Key, Shown> samples;
  for (const Result& result : results.results) {
    const AnswerKey& key = result.answer.key;
    if (protocol_of(key.benchmark) != Protocol::kAnswer) continue;
    Shown& shown = samples[{key.benchmark, key.question, key.task, key.id, key.turn}];
    shown.first = &result;
    shown.answers.push_back(&result);
  }
  std::map<std::string, int> n_shown;
  Json list = Json::array();
  for (const auto& [sample_key, shown] : samples) {
    const AnswerKey& key = shown.first->answer.key;
    const std::string part = key.benchmark + ", " + key.task + ", " + key.question;
    if (++n_shown[part] > n_answers) continue;
    Json answers = Json::array();
    for (const Result* result : shown.answers) {
      const Answer& answer = result->answer;
      answers.push_back({{"method", variant_of(answer.key, results).name()},
                         {"types", answer.key.types.text()},
                         {"budget", answer.key.budget},
                         {"score", answer.score ? Json(*answer.score) : Json()},
                         {"text", answer.error.empty() ? answer.text : "failed: " + answer.error}});
    }
    const auto turn = static_cast<std::size_t>(key.turn);
    const auto& turns = shown.first->sample->turns;
    const SampleInfo::Question question = turn < turns.size() ? turns[turn] : SampleInfo::Question{};
    list.push_back({{"part", part},
                    {"id", key.turn > 0 ? key.id + ", turn " + std::to_string(key.turn + 1) : key.id},
                    {"question", question.text},
                    {"references", question.references},
                    {"answers", std::move(answers)}});
  }
  return list.dump();
}

std::vector<ReportFile> make_report(const Results& results, const ReportOptions& options) {
  const std::vector<Section> sections = summarize(results);
  check_against(options.against, results);
  charts::Page page("Evaluation of " + (results.model.empty() ? "a model" : results.model));
  page.style(kBrowserStyle);
  for (const std::string& line : headline(results, sections)) page.paragraph(line);
  std::vector<Figure> figures;
  for (const Section& section : sections) add_section(section, options, page, figures);
  const std::string answers = answers_json(results, options.n_answers);
  if (answers != "[]") {
    page.section("Answers");
    page.raw(kBrowserHtml);
    page.data("answers", answers);
    page.script(kBrowserScript);
  }
  std::vector<ReportFile> files{{"report.html", page.html()},
                                {"report.md", markdown(results, sections, options.against, options.by)},
                                {"results.csv", csv(sections)}};
  std::set<std::string> names;
  for (Figure& figure : figures) {
    std::string name = figure.name;
    for (int i = 2; !names.insert(name).second; ++i) name = figure.name + "-" + std::to_string(i);
    files.push_back({"figures/" + name + ".svg", std::move(figure.svg)});
  }
  return files;
}

}  // namespace winnow::eval
