#include "charts/charts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <set>

#include "charts/axis.h"
#include "charts/markup_check.h"
#include "charts/page.h"
#include "charts/svg.h"

namespace winnow::charts {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

LineChart line_chart() {
  return {.title = "A & B",
          .x = {.label = "kept", .scale = Scale::kLogarithmic, .is_percent = true},
          .y = {.label = "score", .includes_zero = true},
          .series = {{"one", {{0.05, 10, 5.0, 15.0}, {0.1, 20, 15.0, 25.0}, {0.2, 40, 30.0, 50.0}}, {}},
                     {"two <2>", {{0.05, 12}, {0.1, std::nan("")}, {0.2, 30}}, {}}},
          .levels = {{"full", 60}}};
}

TEST(AxisMap, RoundTicksThatCoverTheRange) {
  const AxisMap linear({}, 3, 97, 0, 100, 6);
  EXPECT_EQ(linear.ticks(), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_DOUBLE_EQ(linear.pixel(50), 50);
  const AxisMap log({.scale = Scale::kLogarithmic, .is_percent = true}, 0.05, 0.5, 0, 100, 6);
  ASSERT_EQ(log.ticks().size(), 4U);
  EXPECT_NEAR(log.ticks()[1], 0.1, 1e-12);
  EXPECT_EQ(log.label(0.05), "5 %");
  EXPECT_NEAR(log.pixel(std::sqrt(0.05 * 0.5)), 50, 1e-9);
}

TEST(AxisMap, OneValueStillHasARange) {
  for (const Scale scale : {Scale::kLinear, Scale::kLogarithmic}) {
    for (const double value : {1e-6, 0.3, 1.0, 12345.0}) {
      const AxisMap map({.scale = scale}, value, value, 0, 100, 5);
      EXPECT_TRUE(std::isfinite(map.pixel(value)));
      EXPECT_GT(map.ticks().size(), 1U) << value;
      EXPECT_LT(map.ticks().size(), 20U) << value;
    }
  }
}

TEST(Numbers, AreShort) {
  EXPECT_EQ(number(12.0), "12");
  EXPECT_EQ(number(12.340), "12.34");
  EXPECT_EQ(number(-0.001), "0");
  EXPECT_EQ(label_of(4096), "4096");
  EXPECT_EQ(label_of(16000, true), "16k");
  EXPECT_EQ(label_of(0.0123456), "0.0123");
}

TEST(Escaped, MarkupAndControlCharacters) {
  EXPECT_EQ(escaped("<a href='x'>&\"\x01"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot; ");
}

TEST(LineChartSvg, DrawsWhatThereIs) {
  const std::string svg = to_svg(line_chart());
  EXPECT_EQ(test::markup_error(svg), "");
  EXPECT_TRUE(test::outside_addresses(svg).empty());
  // Each series has a marker in the legend and one per point, of which there are 3 circles and 2 squares.
  EXPECT_EQ(count(svg, "<circle"), 4);
  EXPECT_EQ(count(svg, "width=\"7.4\""), 3);
  EXPECT_EQ(count(svg, "nan"), 0);
  EXPECT_NE(svg.find("one: 20 [15, 25] at 10 %"), std::string::npos);
  EXPECT_NE(svg.find("full 60"), std::string::npos);
  EXPECT_EQ(svg, to_svg(line_chart()));
}

TEST(LineChartSvg, HigherIsHigherAndRightIsRight) {
  const std::string svg = to_svg(line_chart());
  const std::regex circle("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  std::vector<std::pair<double, double>> places;
  for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end; ++it) {
    places.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  ASSERT_EQ(places.size(), 4U);  // the first one is in the legend
  for (std::size_t i = 2; i < places.size(); ++i) {
    EXPECT_GT(places[i].first, places[i - 1].first);
    EXPECT_LT(places[i].second, places[i - 1].second);
  }
  // Doubling x is the same step everywhere on a logarithmic axis.
  EXPECT_NEAR(places[2].first - places[1].first, places[3].first - places[2].first, 0.02);
  for (const auto& [x, y] : places) {
    EXPECT_GT(x, 0);
    EXPECT_LT(x, 640);
    EXPECT_GT(y, 0);
    EXPECT_LT(y, 360);
  }
}

TEST(LineChartSvg, NothingToDraw) {
  LineChart chart = line_chart();
  chart.levels.clear();
  for (Series& series : chart.series) series.points.clear();
  EXPECT_EQ(test::markup_error(to_svg(chart)), "");
  EXPECT_NE(to_svg(chart).find("no data"), std::string::npos);
  chart.series[0].points = {{0, 1}};  // has no place on a logarithmic axis
  EXPECT_NE(to_svg(chart).find("no data"), std::string::npos);
}

TEST(LineChartSvg, ManySeriesKeepTheirLegendInside) {
  LineChart chart = line_chart();
  for (int i = 0; i < 14; ++i)
    chart.series.push_back({"a-method-with-a-name:option=" + std::to_string(i), {{0.1, 1.0 * i}}, {}});
  const std::string svg = to_svg(chart);
  EXPECT_EQ(test::markup_error(svg), "");
  EXPECT_GT(count(svg, "stroke-dasharray:6 3"), 0);  // the ninth series has the first colour again, dashed
}

// Fifteen methods on one plot cannot be told apart by colour alone.
TEST(SeriesLooks, AreDifferentWithoutTheirColours) {
  std::set<std::pair<std::string, std::string>> looks;  // dash, marker
  std::set<std::string> colours;
  const std::regex colour("var\\(--series-[^)]*\\)");
  for (std::size_t i = 0; i < 32; ++i) {
    colours.insert(series_colour(i));
    looks.emplace(series_dash(i), std::regex_replace(svg_marker(i, 0, 0, ""), colour, "colour"));
  }
  EXPECT_EQ(looks.size(), 32U);
  EXPECT_EQ(colours.size(), 8U);
}

TEST(LineChartSvg, NamesStandInTheOrderOfTheLinesAndApart) {
  for (const double width : {kWide, kNarrow}) {
    LineChart chart{.title = "15 methods", .x = {}, .y = {}, .series = {}, .levels = {}, .width = width};
    for (int i = 0; i < 15; ++i) {
      // The lines form two bundles that end together.
      chart.series.push_back({.name = "method-" + std::to_string(i),
                              .points = {{0, 1.0 * i}, {1, i % 2 + 0.001 * i}},
                              .look = std::nullopt});
    }
    const std::string svg = to_svg(chart);
    EXPECT_EQ(test::markup_error(svg), "");
    std::vector<std::pair<double, double>> places;
    std::vector<int> order;
    const std::regex name("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\"[^>]*>method-([0-9]+)");
    for (std::sregex_iterator it(svg.begin(), svg.end(), name), end; it != end; ++it) {
      places.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
      order.push_back(std::stoi((*it)[3]));
    }
    EXPECT_EQ(order, (std::vector<int>{13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0}));
    for (std::size_t i = 1; i < places.size(); ++i) {
      const bool is_below = places[i].second >= places[i - 1].second + 12;
      EXPECT_TRUE(is_below || places[i].first > places[i - 1].first + 60) << width << ": " << i;
    }
  }
}

TEST(LineChartSvg, ManyLinesHaveNoIntervals) {
  LineChart chart = line_chart();
  EXPECT_GT(count(to_svg(chart), "opacity:.55"), 0);
  for (int i = 0; i < 6; ++i) chart.series.push_back({"line " + std::to_string(i), {{0.1, 1.0 * i}}, {}});
  EXPECT_EQ(count(to_svg(chart), "opacity:.55"), 0);
}

TEST(Fitted, TheMiddleOfALongTextIsLeftOut) {
  EXPECT_EQ(fitted("short", 12, 100), "short");
  const std::string text = "critical-ada-snapkv:window=16,pool=none";
  const std::string shorter = fitted(text, 12, 150);
  EXPECT_LE(text_width(shorter, 12), 150);
  EXPECT_TRUE(shorter.starts_with("critical")) << shorter;
  EXPECT_TRUE(shorter.ends_with("none")) << shorter;
  EXPECT_NE(svg_fitted_text(0, 0, text, 150).find("<title>" + text + "</title>"), std::string::npos);
  EXPECT_EQ(fitted("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", 10, 22), "\xC3\xA9\xE2\x80\xA6\xC3\xA9");
  EXPECT_EQ(fitted("long", 12, 1), "");
}

TEST(Titles, TakeAsManyLinesAsTheyNeed) {
  double height = 34;
  EXPECT_EQ(count(svg_title("niah_single_2, snapkv 20%", kNarrow, height), "<text"), 1);
  EXPECT_EQ(height, 34);
  const std::string svg = svg_title(
      "ruler, question-agnostic: likelihood of the reference answer where the cache is cut before the question",
      kNarrow, height);
  EXPECT_EQ(count(svg, "<text"), 3);
  EXPECT_EQ(height, 70);
}

TEST(LineChartSvg, ALongLegendDoesNotSquashThePlot) {
  // Returns the distance between the markers of the first series' two values.
  const auto drawn_height = [](int n_series) {
    LineChart chart = line_chart();
    chart.levels.clear();
    chart.series = {{"first", {{0.1, 0}, {0.2, 100}}, {}}};
    for (int i = 1; i < n_series; ++i)
      chart.series.push_back({"a method of some length " + std::to_string(i), {{0.1, 50}}, {}});
    const std::string svg = to_svg(chart);
    const std::regex circle("<circle cx=\"[0-9.]+\" cy=\"([0-9.]+)\"[^>]*><title>first: ");
    std::vector<double> y;
    for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end; ++it)
      y.push_back(std::stod((*it)[1]));
    return y.at(0) - y.at(1);
  };
  EXPECT_GT(drawn_height(1), 200);
  EXPECT_GT(drawn_height(40), 200);
}

TEST(BarChartSvg, BarsFromZero) {
  const std::string svg = to_svg(BarChart{.title = "bars",
                                          .value = {.label = "ms"},
                                          .bars = {{.name = "a", .value = 10},
                                                   {.name = "b", .value = -5, .low = -6, .high = -4},
                                                   {.name = "c", .value = std::nan("")}}});
  EXPECT_EQ(test::markup_error(svg), "");
  EXPECT_EQ(count(svg, "rx=\"2\""), 2);
}

TEST(HeatMapSvg, CellsAndGaps) {
  const std::string svg = to_svg(HeatMap{.title = "needles",
                                         .x_label = "length",
                                         .y_label = "depth",
                                         .columns = {"1k", "2k"},
                                         .rows = {"0", "100"},
                                         .cells = {{100.0, 0.0}, {std::nullopt, 50.0}},
                                         .low = 0,
                                         .high = 100});
  EXPECT_EQ(test::markup_error(svg), "");
  EXPECT_EQ(count(svg, "<rect"), 4);
  EXPECT_NE(svg.find("#ffffd9"), std::string::npos);  // lowest
  EXPECT_NE(svg.find("#081d58"), std::string::npos);  // highest
  EXPECT_NE(svg.find("100, 1k: no data"), std::string::npos);
}

TEST(PageHtml, EverythingIsEscapedAndClosed) {
  Page page("<title>");
  page.section("one & two");
  page.section("three");
  page.table({"name", "<n>"}, {{"a<b", std::string(1, Page::kStrong) + "5 & 6"}}, 1);
  page.note("careful > here");
  page.figure(to_svg(line_chart()), to_svg(line_chart()));
  page.figures({to_svg(line_chart()), to_svg(line_chart())});
  page.data("d", R"(["</script><script>alert(1)</script>"])");
  const std::string html = page.html();
  EXPECT_EQ(test::markup_error(html), "");
  EXPECT_TRUE(test::outside_addresses(html).empty());
  EXPECT_NE(html.find("<b>5 &amp; 6</b>"), std::string::npos);
  EXPECT_NE(html.find("ariaSort"), std::string::npos);  // tables can be sorted
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
}

TEST(MarkupCheck, FindsWhatIsWrong) {
  EXPECT_EQ(test::markup_error("<p>a <b>b</b> &amp; c<br></p>"), "");
  for (const char* wrong : {"<p>", "<p></b>", "a & b", "a > b", "<p a=\"x<y\"></p>", "<p", "1 < 2"}) {
    EXPECT_NE(test::markup_error(wrong), "") << wrong;
  }
  EXPECT_EQ(test::outside_addresses("<img src=\"https://x.org/a.png\">").size(), 1U);
}

}  // namespace
}  // namespace winnow::charts
