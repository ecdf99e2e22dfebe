// Reports of made-up answers with known means.
#include "eval/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/atomic_file.h"
#include "charts/markup_check.h"
#include "eval/report/figures.h"
#include "eval/report/tables.h"
#include "eval/run/result_store.h"
#include "expect_error.h"
#include "model/tiny_model.h"

namespace winnow::eval {
namespace {

constexpr const char* kNasty = "a<b>&\"</script><script>alert(1)</script>";

Results made_up_results() {
  Results results;
  results.model = "model <1>";
  results.methods = {"full", "snapkv", "tova"};
  results.budgets = {"20%", "10%"};
  const auto add = [&](const std::string& benchmark, const std::string& task, int i, const std::string& method,
                       const std::string& budget) {
    auto info = std::make_shared<SampleInfo>();
    info->cluster = "book" + std::to_string(i % 3);
    info->coordinates = {{"depth", i % 5 * 25.0}, {"length", i % 2 == 0 ? 1000.0 : 2000.0}};
    info->turns = {{kNasty, {"ref"}}};
    Answer answer;
    answer.key = {benchmark, task, "s" + std::to_string(i), 0, "agnostic", method, budget};
    answer.entries_full = 1000;
    answer.entries_kept = budget.empty() ? 1000 : budget == "20%" ? 200 : 100;
    answer.bytes_full = 1 << 20;
    answer.bytes_kept = static_cast<std::uint64_t>(answer.entries_kept) << 10;
    answer.text = kNasty;
    answer.nll = 2.0;
    const int loss = budget.empty() ? 0 : method == "tova" ? 2 : 1;
    if (benchmark == "fidelity") {
      answer.fidelity = Fidelity{0.01 * (i + 1) * (budget == "10%" ? 4 : 2) * loss, 0.9, 1.9};
    } else {
      answer.score = i % 10 < 8 - 2 * loss ? 1 : 0;
      answer.has_keyword = i % 2 == 0;
    }
    results.results.push_back({std::move(answer), std::move(info)});
  };
  for (int i = 0; i < 20; ++i) {
    for (const std::string& method : results.methods) {
      for (const std::string& budget : results.budgets) {
        if (method != "full") {
          add("niah", "one", i, method, budget);
          add("fidelity", "fidelity", i, method, budget);
        }
      }
    }
    add("niah", "one", i, "full", "");
    add("niah", "two", i, "full", "");
    add("niah", "two", i, "snapkv", "20%");
  }
  results.n_expected = static_cast<std::int64_t>(results.results.size()) + 5;
  return results;
}

const Section& section_of(const std::vector<Section>& sections, const std::string& benchmark) {
  return *std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.benchmark == benchmark; });
}

const SummaryRow& row_of(const Section& section, const Condition& condition) {
  return *std::find_if(section.rows.begin(), section.rows.end(),
                       [&](const SummaryRow& row) { return row.condition == condition; });
}

TEST(Summary, MeansByTaskAndInAll) {
  const std::vector<Section> sections = summarize(made_up_results());
  ASSERT_EQ(sections.size(), 2U);
  const Section& niah = section_of(sections, "niah");
  ASSERT_EQ(niah.rows.size(), 5U);
  EXPECT_EQ(niah.rows[0].condition.method, "full");
  EXPECT_NEAR(niah.rows[0].value.mean, 0.8, 1e-12);
  EXPECT_NEAR(row_of(niah, {"snapkv", "20%"}).value.mean, 0.6, 1e-12);
  EXPECT_NEAR(row_of(niah, {"tova", "10%"}).value.mean, 0.4, 1e-12);
  EXPECT_NEAR(row_of(niah, {"snapkv", "20%"}).kept_share, 0.2, 1e-12);
  EXPECT_NEAR(*row_of(niah, {"snapkv", "20%"}).keyword, 0.5, 1e-12);
  EXPECT_LT(niah.rows[0].value.low, 0.8);
  EXPECT_GT(niah.rows[0].value.high, 0.8);
  ASSERT_EQ(niah.breakdowns.size(), 2U);
  EXPECT_EQ(niah.breakdowns[0].by, "task");
  EXPECT_EQ(niah.breakdowns[0].columns, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(niah.breakdowns[1].columns, (std::vector<std::string>{"1000", "2000"}));
}

// The columns beside the measure are means of the tasks' means, too.
TEST(Summary, EveryMeanIsThatOfTheTasksMeans) {
  Results results;
  results.methods = {"full"};
  const auto add = [&](const std::string& task, int i, double value) {
    Answer answer{.key = {"longbench", task, "s" + std::to_string(i), 0, "agnostic", "full", ""}};
    answer.score = value;
    answer.nll = 4 * value;
    answer.has_keyword = value > 0;
    answer.entries_full = 100;
    answer.entries_kept = value > 0 ? 100 : 50;
    results.results.push_back({std::move(answer), std::make_shared<SampleInfo>()});
  };
  add("qasper", 0, 1);
  for (int i = 0; i < 3; ++i) add("lcc", i, 0);
  const SummaryRow row = summarize(results).at(0).rows.at(0);
  EXPECT_DOUBLE_EQ(row.value.mean, 0.5);
  EXPECT_DOUBLE_EQ(*row.nll, 2);
  EXPECT_DOUBLE_EQ(*row.keyword, 0.5);
  EXPECT_DOUBLE_EQ(row.kept_share, 0.75);
}

TEST(Summary, PairsOnTheSameSamples) {
  const std::vector<Section> sections = summarize(made_up_results());
  const ComparisonTable& scores = section_of(sections, "niah").comparisons.at(0);
  EXPECT_EQ(scores.budget, "20%");
  ASSERT_EQ(scores.variants, (std::vector<Variant>{{"full"}, {"snapkv"}, {"tova"}}));
  EXPECT_NEAR(scores.cells[1][2].difference.mean, 0.2, 1e-12);
  EXPECT_NEAR(scores.cells[2][1].difference.mean, -0.2, 1e-12);
  EXPECT_EQ(scores.cells[1][2].n_greater, 4);
  const ComparisonTable& divergences = section_of(sections, "fidelity").comparisons.at(1);
  ASSERT_EQ(divergences.variants, (std::vector<Variant>{{"snapkv"}, {"tova"}}));
  EXPECT_NEAR(divergences.cells[0][1].difference.mean, 0.5, 1e-9);  // half the divergence on every prompt
  EXPECT_TRUE(divergences.cells[0][1].is_clear);
}

// Rows go from the largest budget to the smallest, and at each from the best to the worst, whatever order the runs had.
TEST(Summary, RowsAreSorted) {
  Results results = made_up_results();
  results.methods = {"tova", "snapkv", "full"};
  results.budgets = {"10%", "20%"};
  const std::vector<Condition> evicting{{"snapkv", "20%"}, {"tova", "20%"}, {"snapkv", "10%"}, {"tova", "10%"}};
  const std::vector<Section> sections = summarize(results);
  for (const char* benchmark : {"niah", "fidelity"}) {  // more is better in the first, less in the second
    const Section& section = section_of(sections, benchmark);
    std::vector<Condition> order, expected = evicting;
    for (const SummaryRow& row : section.rows) order.push_back(row.condition);
    if (section.measure == Measure::kScore) expected.insert(expected.begin(), {"full", ""});
    EXPECT_EQ(order, expected) << benchmark;
    EXPECT_EQ(section.comparisons.at(0).budget, "20%");
    const TextGrid grid = budget_grid(section);
    EXPECT_EQ(grid.columns, (std::vector<std::string>{"method", "type kv", "20%", "10%"}));
    EXPECT_EQ(grid.rows.back()[0], "tova");
    EXPECT_EQ(grid.rows[grid.rows.size() - 2][0], "snapkv");
  }
}

TEST(Summary, NeedleMapsHaveEveryCell) {
  const std::vector<Section> sections = summarize(made_up_results());
  const NeedleMap& map = section_of(sections, "niah").needle_maps.at(0);
  EXPECT_EQ(map.depths, (std::vector<double>{0, 25, 50, 75, 100}));
  EXPECT_EQ(map.lengths, (std::vector<double>{1000, 2000}));
  // Depth 0, length 1000: samples 0 and 10 of the full cache, both right.
  EXPECT_DOUBLE_EQ(*map.cells[0][0], 1);
  EXPECT_TRUE(section_of(sections, "fidelity").needle_maps.empty());
}

TEST(Summary, FailuresAndGapsAreSaid) {
  Results results = made_up_results();
  for (Result& result : results.results) {
    if (result.answer.key.id == "s3" && result.answer.key.method == "tova") {
      result.answer = {.key = result.answer.key, .error = "no room"};
    }
  }
  const std::vector<Section> sections = summarize(results);
  EXPECT_EQ(section_of(sections, "niah").failures.at(0), (std::pair<std::string, int>{"no room", 2}));
  EXPECT_EQ(row_of(section_of(sections, "niah"), {"tova", "20%"}).value.n_samples, 19);
  const std::string text = markdown(results, sections);
  EXPECT_NE(text.find("Failed 2 times: no room"), std::string::npos);
  EXPECT_NE(text.find("is not finished"), std::string::npos);
}

TEST(Report, PageIsWellFormedAndAlone) {
  const std::vector<ReportFile> files = make_report(made_up_results());
  ASSERT_GT(files.size(), 6U);
  EXPECT_EQ(files[0].path, "report.html");
  const std::string& page = files[0].content;
  EXPECT_EQ(test::markup_error(page), "");
  EXPECT_EQ(test::outside_addresses(page), std::vector<std::string>{});
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("model &lt;1&gt;"), std::string::npos);
  for (const ReportFile& file : files) {
    if (file.path.ends_with(".svg")) {
      EXPECT_EQ(test::markup_error(file.content), "") << file.path;
    }
  }
}

TEST(Report, AnswersAreLimitedByTask) {
  const auto list = nlohmann::json::parse(answers_json(made_up_results(), 3));
  EXPECT_EQ(list.size(), 6U);  // two tasks
  EXPECT_EQ(list[0]["answers"].size(), 5U);
  EXPECT_EQ(list[0]["question"], kNasty);
  EXPECT_EQ(answers_json(made_up_results(), 0), "[]");
}

TEST(Report, CsvHasARowForEveryMean) {
  const std::string text = csv(summarize(made_up_results()));
  const auto n_lines = std::count(text.begin(), text.end(), '\n');
  // Header; niah: 5 rows in all, by task 4 x 1 + ... by length 2 each; fidelity: 4 rows, by length 2 each.
  EXPECT_EQ(n_lines, 1 + 5 + (2 + 2 + 1 + 1 + 1) + 5 * 2 + 4 + 4 * 2);
  const std::string header = text.substr(0, text.find('\n'));
  const auto n_fields = std::count(header.begin(), header.end(), ',');
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    // "KL, nats" is quoted.
    for (std::size_t quoted = line.find("\"KL, nats\""); quoted != std::string::npos;
         quoted = line.find("\"KL, nats\"")) {
      line.erase(quoted, 10);
    }
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), n_fields) << line;
    begin = end + 1;
  }
}

TEST(Report, TablesByBudgetHaveARowForEachMethod) {
  const std::vector<Section> sections = summarize(made_up_results());
  const TextGrid scores = budget_grid(section_of(sections, "niah"));
  EXPECT_EQ(scores.columns, (std::vector<std::string>{"method", "type kv", "20%", "10%"}));
  ASSERT_EQ(scores.rows.size(), 3U);
  EXPECT_EQ(scores.rows[0][0], "full");
  EXPECT_EQ(scores.rows[0][1], "f16");
  EXPECT_EQ(scores.rows[0][2], scores.rows[0][3]);
  EXPECT_TRUE(scores.rows[1][2].starts_with("60.00 [")) << scores.rows[1][2];
  EXPECT_TRUE(scores.rows[2][3].starts_with("40.00 [")) << scores.rows[2][3];
  Section one_budget = section_of(sections, "niah");
  std::erase_if(one_budget.rows, [](const SummaryRow& row) { return row.condition.budget == "10%"; });
  EXPECT_TRUE(budget_grid(one_budget).rows.empty());
}

// tova's entries take half the bytes: its 20 % are measured at 10 % of the bytes, and between 10 and 5 % a line is
// drawn.
TEST(Report, TablesAndPlotsStandAtEqualBytes) {
  Results results = made_up_results();
  for (Result& result : results.results) {
    if (result.answer.key.method == "tova") result.answer.bytes_kept /= 2;
  }
  const std::vector<Section> sections = summarize(results);
  const Section& fidelity = section_of(sections, "fidelity");
  const TextGrid grid = bytes_grid(fidelity);
  EXPECT_EQ(grid.columns, (std::vector<std::string>{"method", "type kv", "20%bytes", "10%bytes", "5%bytes"}));
  ASSERT_EQ(grid.rows.size(), 2U);
  const auto row_of = [&](const std::string& method) {
    return *std::find_if(grid.rows.begin(), grid.rows.end(), [&](const auto& row) { return row[0] == method; });
  };
  const auto kl = [&](const std::string& method, const std::string& budget) {
    for (const SummaryRow& row : fidelity.rows) {
      if (row.condition.method == method && row.condition.budget == budget)
        return value_text(row.value.mean, fidelity.measure);
    }
    return std::string("nothing");
  };
  EXPECT_EQ(row_of("snapkv"),
            (std::vector<std::string>{"snapkv", "f16", kl("snapkv", "20%"), kl("snapkv", "10%"), ""}));
  EXPECT_EQ(row_of("tova"), (std::vector<std::string>{"tova", "f16", "", kl("tova", "20%"), kl("tova", "10%")}));

  for (Result& result : results.results) {
    if (result.answer.key.method == "tova") result.answer.bytes_kept = result.answer.bytes_kept * 10 / 7;
  }
  const TextGrid between = bytes_grid(section_of(summarize(results), "fidelity"));
  const auto tova =
      std::find_if(between.rows.begin(), between.rows.end(), [](const auto& row) { return row[0] == "tova"; });
  // 14 and 7 % were measured, and the KL of the second is twice the first's: it goes with one over the bytes.
  const double share = 200.0 * 1024 / (1 << 20) / 2 * 10 / 7;
  EXPECT_EQ((*tova)[3], "~" + value_text(0.01 * 10.5 * 2 * 2 * share / 0.1, fidelity.measure));
  EXPECT_TRUE((*tova)[2].empty());

  EXPECT_NE(quality_figures(fidelity, KeptUnit::kBytes).at(0).svg.find("bytes kept of the full cache"),
            std::string::npos);
  EXPECT_NE(markdown(results, sections, "", KeptUnit::kBytes).find("At equal bytes"), std::string::npos);
  EXPECT_EQ(markdown(results, sections).find("At equal bytes"), std::string::npos);
}

TEST(Report, OneMethodIsSetAgainstAllOthers) {
  const std::vector<Section> sections = summarize(made_up_results());
  const TextGrid ratios = against_grid(section_of(sections, "fidelity"), "tova");
  ASSERT_EQ(ratios.rows.size(), 1U);
  EXPECT_EQ(ratios.rows[0], (std::vector<std::string>{"snapkv", "f16", "0.50x [0.50, 0.50]", "0.50x [0.50, 0.50]"}));
  EXPECT_TRUE(ratios.strong[0][3]);
  const TextGrid differences = against_grid(section_of(sections, "niah"), "snapkv");
  ASSERT_EQ(differences.rows.size(), 2U);
  EXPECT_TRUE(differences.rows[1][2].starts_with("-20.00 [")) << differences.rows[1][2];
  EXPECT_TRUE(against_grid(section_of(sections, "niah"), "").rows.empty());
  EXPECT_NE(make_report(made_up_results(), {.against = "tova"})[1].content.find("### Against tova"), std::string::npos);
  test::expect_error(ErrorCode::kNotFound, "there are those of: full; snapkv; tova",
                     [] { make_report(made_up_results(), {.against = "h2o"}); });
}

// Returns the results with a copy in quantised entries that has three times the divergence. The full cache has one,
// too.
Results two_entry_types() {
  Results results = made_up_results();
  const std::vector<Result> plain = results.results;
  for (Result result : plain) {
    result.answer.key.types = {"q8_0", "q4_0"};
    if (result.answer.fidelity) result.answer.fidelity->kl *= 3;
    results.results.push_back(result);
    if (result.answer.key.method != "full" || result.answer.key.task != "one") continue;
    result.answer.key.benchmark = result.answer.key.task = "fidelity";
    result.answer.score.reset();
    result.answer.fidelity = Fidelity{0.02, 0.95, 1.9};
    results.results.push_back(result);
  }
  return results;
}

TEST(Report, EntryTypesAreToldApartEverywhere) {
  const Results results = two_entry_types();
  const std::vector<Section> sections = summarize(results);
  const Section& fidelity = section_of(sections, "fidelity");
  const SummaryRow& plain = row_of(fidelity, {"snapkv", "20%"});
  const SummaryRow& quantised = row_of(fidelity, {"snapkv", "20%", {"q8_0", "q4_0"}});
  EXPECT_EQ(plain.value.n_samples, 20);
  EXPECT_EQ(quantised.value.n_samples, 20);
  EXPECT_NEAR(quantised.value.mean, 3 * plain.value.mean, 1e-12);

  std::vector<TextGrid> grids{overview_grid(fidelity), budget_grid(fidelity), cost_grid(fidelity),
                              against_grid(fidelity, "snapkv q8_0/q4_0")};
  for (TextGrid& grid : breakdown_grids(fidelity)) grids.push_back(std::move(grid));
  ASSERT_EQ(grids.size(), 5U);
  for (const TextGrid& grid : grids) {
    const auto column = std::find(grid.columns.begin(), grid.columns.end(), "type kv") - grid.columns.begin();
    ASSERT_LT(static_cast<std::size_t>(column), grid.n_left) << grid.title;
    std::set<std::string> types;
    for (const auto& row : grid.rows) types.insert(row[static_cast<std::size_t>(column)]);
    EXPECT_EQ(types, (std::set<std::string>{"f16", "q8_0/q4_0"})) << grid.title;
  }
  for (const TextGrid& grid : comparison_grids(fidelity)) {
    EXPECT_EQ(std::count(grid.columns.begin(), grid.columns.end(), "snapkv q8_0/q4_0"), 1) << grid.title;
    // The quantised full cache has a divergence to compare, but the reference has none.
    EXPECT_EQ(std::count(grid.columns.begin(), grid.columns.end(), "full q8_0/q4_0"), 1) << grid.title;
    EXPECT_EQ(std::count(grid.columns.begin(), grid.columns.end(), "full"), 0) << grid.title;
  }
  const std::string table = csv(sections);
  EXPECT_NE(table.find("fidelity,agnostic,all,,snapkv,20%,f16,f16,"), std::string::npos);
  EXPECT_NE(table.find("fidelity,agnostic,all,,snapkv,20%,q8_0,q4_0,"), std::string::npos);
  const Figure plot = quality_figures(fidelity).at(0);
  for (const char* name : {">snapkv<", ">snapkv q8_0/q4_0<", "full cache q8_0/q4_0"}) {
    EXPECT_NE(plot.svg.find(name), std::string::npos) << name;
  }
  EXPECT_NE(answers_json(results, 3).find("snapkv q8_0/q4_0"), std::string::npos);
  test::expect_error(ErrorCode::kNotFound, "snapkv; snapkv q8_0/q4_0",
                     [&] { make_report(results, {.against = "snapkv q8_0"}); });
}

// A report of fifteen methods, some with long names, in two entry types and four budgets, for the browser's test.
TEST(Report, ManyMethods) {
  Results results;
  results.model = "SmolLM2 135M";
  results.budgets = {"50%", "20%", "10%", "5%"};
  for (const char* name :
       {"streaming-llm", "h2o", "tova", "snapkv", "pyramidkv", "ada-snapkv", "ada-pyramidkv", "cake", "critical-snapkv",
        "critical-ada-snapkv:window=16,pool=none,kernel=3", "lava", "keydiff", "expected-attention", "vatp"}) {
    results.methods.emplace_back(name);
  }
  std::uint64_t state = 1;
  const auto random = [&] {
    return static_cast<double>((state = state * 6364136223846793005ULL + 1) >> 40) / (1 << 24);
  };
  const auto add = [&](const std::string& benchmark, int i, const std::string& method, const std::string& budget,
                       const EntryTypes& types, double loss) {
    auto info = std::make_shared<SampleInfo>();
    info->cluster = "book" + std::to_string(i % 4);
    info->coordinates = {{"depth", i % 4 * 33.0}, {"length", i % 2 == 0 ? 1000.0 : 2000.0}};
    info->turns = {{"Where is it?", {"in the blue tin"}}};
    Answer answer{.key = {benchmark, benchmark == "niah" ? "niah" : "fidelity", std::to_string(i), 0, "agnostic",
                          method, budget, types}};
    answer.entries_full = 180'000;
    answer.entries_kept = budget.empty() ? answer.entries_full : answer.entries_full * std::stoi(budget) / 100;
    answer.bytes_full = static_cast<std::uint64_t>(answer.entries_full) * 260;
    answer.bytes_kept = static_cast<std::uint64_t>(answer.entries_kept) * 260;
    answer.prompt_tokens = 2000;
    answer.evict_s = 0.02 + 0.2 * loss;
    answer.nll = 1 + loss;
    answer.text = "in the tin";
    if (benchmark == "niah") {
      answer.score = random() > loss ? 1 : 0;
    } else {
      answer.fidelity = Fidelity{loss * (0.5 + random()), 1 - loss / 2, 1};
    }
    results.results.push_back({std::move(answer), std::move(info)});
  };
  for (const char* benchmark : {"fidelity", "niah"}) {
    double of_method = 0.02;
    for (const std::string& method : results.methods) {
      of_method *= 1.12;
      for (const std::string& budget : results.budgets) {
        for (int i = 0; i < 12; ++i) {
          add(benchmark, i, method, budget, {}, of_method * 10 / std::stoi(budget) + 0.01 * random());
        }
      }
    }
    for (const std::string& budget : results.budgets) {
      for (int i = 0; i < 12; ++i) add(benchmark, i, "snapkv", budget, {"q8_0", "q4_0"}, 0.1 + 1.0 / std::stoi(budget));
    }
    for (int i = 0; i < 12; ++i) add(benchmark, i, "full", "", {"q8_0", "q4_0"}, 0.08);
  }
  results.methods.emplace_back("full");
  results.n_expected = static_cast<std::int64_t>(results.results.size());
  const std::vector<ReportFile> files = make_report(results, {.against = "snapkv"});
  for (const ReportFile& file : files) {
    const bool is_markup = file.path.ends_with(".html") || file.path.ends_with(".svg");
    EXPECT_EQ(is_markup ? test::markup_error(file.content) : "", "") << file.path;
  }
  write_file(WINNOW_REPORT_PAGE, files[0].content);  // for report_page_test.py
}

TEST(Report, NamesOfFilesArePlain) {
  EXPECT_EQ(file_stem("niah-agnostic-snapkv:window=16 20%"), "niah-agnostic-snapkv-window-16-20pc");
  EXPECT_EQ(file_stem("/../x"), "x");
}

TEST(Results, RunsOfTwoModelsAreRefused) {
  const test::TemporaryDirectory directory;
  for (const char* name : {"1", "2", "3"}) {
    const std::string fingerprint = std::string(name) == "3" ? "1" : name;
    const ResultStore store(directory.file(name),
                            {{"model_fingerprint", fingerprint}, {"methods", {"full", name}}, {"budgets", {"5%"}}}, {},
                            {});
  }
  test::expect_error(ErrorCode::kInvalidArgument, "one model at a time", [&] {
    load_results({directory.file("1"), directory.file("2")});
  });
  EXPECT_EQ(load_results({directory.file("1"), directory.file("3")}).methods,
            (std::vector<std::string>{"full", "1", "3"}));
  test::expect_error(ErrorCode::kNotFound, "holds no evaluation", [&] { load_results({directory.file("4")}); });
}

TEST(Results, RunsOfOneBenchmarkThatDoNotCompareAreRefused) {
  const test::TemporaryDirectory directory;
  const nlohmann::json configuration{{"model_fingerprint", "1"}, {kModelMetadata, "1"}, {"benchmarks", {"ruler"}},
                                     {"methods", {"full"}},      {"budgets", {"5%"}},   {"context", 4096},
                                     {"chat_template", true},    {"seed", 0},           {kChineseWords, kCharacters}};
  const auto folder = [&](const std::string& name, const nlohmann::json& changes) {
    nlohmann::json changed = configuration;
    changed.update(changes);
    const ResultStore store(directory.file(name), changed, {}, {});
    return directory.file(name);
  };
  const std::string plain = folder("plain", nlohmann::json::object());
  const auto refuse = [&](const std::string& setting, const nlohmann::json& value, const std::string& part) {
    const std::string other = folder(setting, {{setting, value}});
    test::expect_error(ErrorCode::kInvalidArgument, part, [&] { load_results({plain, other}); });
    if (setting == kModelMetadata) return;
    const std::string elsewhere = folder(setting + " elsewhere", {{setting, value}, {"benchmarks", {"niah"}}});
    EXPECT_NO_THROW(load_results({plain, elsewhere}));
  };
  refuse("context", 8192, "(context is 4096 in the first and 8192 in the second)");
  refuse("chat_template", false, "with the --chat-template of the other");
  refuse("seed", 1, "with the --seed of the other");
  refuse(kChineseWords, "0123456789abcdef", "with the --jieba of the other");
  refuse(kModelMetadata, "2", "one model at a time");
  EXPECT_NO_THROW(load_results({plain, folder("same", {{"methods", {"tova"}}})}));
}

TEST(Results, AnotherSampleOfTheSameNameIsRefused) {
  const test::TemporaryDirectory directory;
  const auto folder = [&](const std::string& name, double depth, QuestionMode mode) {
    WorkItem item{.benchmark = "niah", .mode = mode};
    item.sample.task = "niah";
    item.sample.id = "400-0-1";
    item.sample.context = std::string(700, 'a') + std::to_string(depth);  // differs after the part that lines show
    item.sample.coordinates = {{"depth", depth}};
    item.sample.turns = {{.question = "Where?", .references = {"here"}}};
    const ResultStore store(directory.file(name),
                            {{"model_fingerprint", "1"}, {"methods", {"full"}}, {"budgets", {"5%"}}}, {}, {});
    const WorkItem* items[] = {&item};
    store.write_samples(items);
    return directory.file(name);
  };
  const std::string plain = folder("plain", 50, QuestionMode::kAgnostic);
  const std::string other = folder("other", 100, QuestionMode::kAgnostic);
  EXPECT_NO_THROW(load_results({plain, folder("same", 50, QuestionMode::kAgnostic)}));
  EXPECT_NO_THROW(load_results({plain, folder("aware", 100, QuestionMode::kAware)}));
  const auto refuse = [&] {
    test::expect_error(ErrorCode::kInvalidArgument, "sample 400-0-1 of niah is another", [&] {
      load_results({plain, other});
    });
  };
  refuse();
  // Lines of earlier versions have no digest, but coordinates.
  const std::string samples = other + "/samples-1-of-1.jsonl";
  auto line = nlohmann::json::parse(test::read_bytes(samples));
  line.erase(kSampleDigest);
  write_file(samples, line.dump() + "\n");
  refuse();
  line["coordinates"]["depth"] = 50;
  write_file(samples, line.dump() + "\n");
  EXPECT_NO_THROW(load_results({plain, other}));
}

TEST(Results, ADamagedFolderIsNamed) {
  const test::TemporaryDirectory directory;
  const std::string folder = directory.file("run");
  const nlohmann::json whole{{"methods", {"full"}}, {"budgets", {"5%"}}};
  const auto refuse = [&](const nlohmann::json& run, const nlohmann::json& sample, const std::string& file) {
    directory.write("run/run.json", nlohmann::json{{"run", run}}.dump());
    directory.write("run/samples-1-of-1.jsonl", sample.dump() + "\n");
    test::expect_error(ErrorCode::kBadFile, "'" + folder + "/" + file + "' is damaged",
                       [&] { load_results({folder}); });
  };
  const nlohmann::json sample{{"benchmark", "niah"}, {"task", "niah"}, {"id", "1"}, {"question", "agnostic"}};
  refuse(whole, sample, "samples-*.jsonl");
  refuse({{"budgets", {"5%"}}}, sample, "run.json");
  refuse({{"methods", "full"}, {"budgets", 5}}, sample, "run.json");
}

// Folders may share answers, of the full cache for one, and then have fewer together than their numbers' sum.
TEST(Results, FoldersThatShareAnswersAreFinished) {
  const test::TemporaryDirectory directory;
  const auto folder = [&](const std::string& method, int n_answers) {
    ResultStore store(
        directory.file(method),
        {{"model_fingerprint", "1"}, {"methods", {"full", method}}, {"budgets", {"5%"}}, {"answers", n_answers}}, {},
        {});
    for (const auto& [name, budget] : {std::pair<std::string, std::string>{"full", ""}, {method, "5%"}}) {
      Answer answer{.key = {"niah", "niah", "s", 0, "agnostic", name, budget}};
      answer.score = 1;
      store.append(answer);
    }
    return directory.file(method);
  };
  const std::string snapkv = folder("snapkv", 2);
  const Results finished = load_results({snapkv, folder("tova", 2)});
  ASSERT_EQ(finished.results.size(), 3U);
  EXPECT_EQ(markdown(finished, summarize(finished)).find("is not finished"), std::string::npos);
  // Shards of one run may lie in folders of their own, whose machines had other memory.
  const auto shard = [&](const std::string& id, int kv_memory) {
    ResultStore store(directory.file("shard-" + id),
                      {{"model_fingerprint", "1"},
                       {"methods", {"full"}},
                       {"budgets", nlohmann::json::array()},
                       {"answers", 3},
                       {"kv_memory", kv_memory}},
                      {}, {});
    Answer answer{.key = {"niah", "niah", id, 0, "agnostic", "full", ""}};
    answer.score = 1;
    store.append(answer);
    return directory.file("shard-" + id);
  };
  const std::string first = shard("a", 1), second = shard("b", 2);
  const Results two = load_results({first, second});
  EXPECT_NE(markdown(two, summarize(two)).find("it has 2 of 3 answers"), std::string::npos);
  const Results three = load_results({first, second, shard("c", 3)});
  EXPECT_EQ(markdown(three, summarize(three)).find("is not finished"), std::string::npos);
  const Results unfinished = load_results({snapkv, folder("h2o", 4)});
  EXPECT_NE(markdown(unfinished, summarize(unfinished)).find("it has 3 of 5 answers"), std::string::npos);
}

TEST(Results, AFailureNeverHidesAnAnswer) {
  const test::TemporaryDirectory directory;
  const Answer failed{.key = {"ruler", "task", "s", 0, "agnostic", "full", ""}, .error = "no room"};
  Answer good{.key = failed.key};
  good.score = 1;
  std::vector<std::string> folders;
  for (const Answer& answer : {failed, good}) {
    folders.push_back(directory.file(answer.error.empty() ? "good" : "failed"));
    ResultStore(folders.back(),
                {{"model_fingerprint", "1"}, {"methods", {"full"}}, {"budgets", nlohmann::json::array()}}, {}, {})
        .append(answer);
  }
  for (int order = 0; order < 2; ++order) {
    const Results results = load_results(folders);
    ASSERT_EQ(results.results.size(), 1U);
    EXPECT_EQ(results.results[0].answer.error, "");
    std::swap(folders[0], folders[1]);
  }
}

TEST(Results, RunsOfTwoEntryTypesAreBothThere) {
  const test::TemporaryDirectory directory;
  Answer answer{.key = {"fidelity", "fidelity", "s", 0, "agnostic", "tova", "5%"}};
  answer.fidelity = Fidelity{0.5, 0.5, 2};
  std::vector<std::string> folders;
  for (const char* type : {"f16", "q4_0"}) {
    answer.key.types = {type, type};
    nlohmann::json configuration{{"model_fingerprint", "1"},
                                 {"methods", {"tova"}},
                                 {"budgets", {"5%"}},
                                 {"key_type", type},
                                 {"value_type", type}};
    if (answer.key.types != EntryTypes()) configuration[kReferenceTypes] = "f16";
    folders.push_back(directory.file(type));
    ResultStore(folders.back(), configuration, {}, {}).append(answer);
  }
  EXPECT_EQ(load_results(folders).results.size(), 2U);
}

// A method that chooses its types is one variant; a method that ran with two cache types is two.
TEST(Results, AMethodThatChoosesItsTypesIsOneVariant) {
  const test::TemporaryDirectory directory;
  const auto run = [&](const std::string& name, const std::string& type_at_20, const std::string& type_at_5) {
    ResultStore store(directory.file(name),
                      {{"model_fingerprint", "1"}, {"methods", {"auto", "tova"}}, {"budgets", {"20%", "5%"}}}, {}, {});
    for (const char* method : {"auto", "tova"}) {
      for (const char* budget : {"20%", "5%"}) {
        for (const char* sample : {"a", "b"}) {
          Answer answer{.key = {"fidelity", "fidelity", sample, 0, "agnostic", method, budget}};
          const std::string type = std::string(budget) == "20%" ? type_at_20 : type_at_5;
          if (std::string(method) == "auto") answer.key.types = {type, type};
          answer.fidelity = Fidelity{std::string(method) == "auto" ? 0.01 : 0.5, 0.5, 2};
          store.append(answer);
        }
      }
    }
    return directory.file(name);
  };
  const std::string by_budget = run("by-budget", "q8_0+r4", "r4");
  const Results results = load_results({by_budget});
  EXPECT_EQ(variants_of(results), (std::vector<Variant>{{"auto", kOwnTypes}, {"tova"}}));
  const std::vector<Section> sections = summarize(results);
  ASSERT_EQ(sections.size(), 1U);
  std::vector<std::string> types;
  for (const SummaryRow& row : sections[0].rows) types.push_back(row.condition.label() + ": " + row.types.text());
  EXPECT_EQ(types, (std::vector<std::string>{"auto 20%: q8_0+r4", "tova 20%: f16", "auto 5%: r4", "tova 5%: f16"}));
  const TextGrid ratios = against_grid(sections[0], "auto");
  EXPECT_EQ(ratios.columns, (std::vector<std::string>{"method", ratios.columns[1], "20%", "5%"}));
  ASSERT_EQ(ratios.rows.size(), 1U);
  EXPECT_EQ(ratios.rows[0][2].substr(0, 6), "50.00x") << ratios.rows[0][2];
  EXPECT_NE(ratios.rows[0][3], "");
  EXPECT_FALSE(make_report(results, {.against = "auto"}).empty());
  const TextGrid of_auto = against_grid(sections[0], "tova");
  ASSERT_EQ(of_auto.rows.size(), 1U);
  EXPECT_EQ(of_auto.rows[0][2].substr(0, 6), "0.020x") << of_auto.rows[0][2];

  // Another run stores other types at the same budgets, so variants are told apart by types again.
  const Results both = load_results({by_budget, run("other", "q8_0", "q4_0")});
  EXPECT_EQ(variants_of(both).size(), 5U);
}

// Runs of old versions measured the divergence from a full cache that was quantised, too.
TEST(Results, FidelityFromAQuantisedReferenceIsRefused) {
  const test::TemporaryDirectory directory;
  Answer answer{.key = {"fidelity", "fidelity", "s", 0, "agnostic", "full", ""}};
  answer.key.types = {"q4_0", "q4_0"};
  ResultStore(directory.file("old"),
              {{"model_fingerprint", "1"},
               {"methods", {"full"}},
               {"budgets", nlohmann::json::array()},
               {"key_type", "q4_0"},
               {"value_type", "q4_0"}},
              {}, {})
      .append(answer);
  test::expect_error(ErrorCode::kUnsupported, "run it again", [&] { load_results({directory.file("old")}); });
}

}  // namespace
}  // namespace winnow::eval
