#include <gtest/gtest.h>

#include "eviction/options/option_table.h"
#include "eviction/options/registry.h"
#include "eviction/options/same_method.h"
#include "expect_error.h"
#include "winnow/error.h"

namespace winnow {
namespace {

ErrorCode code_of(const std::string& text, std::string* message = nullptr) {
  return test::code_of([&] { EvictionOptions::parse(text); }, message);
}

std::string text_of(std::string_view scorer, std::string_view layers, std::string_view heads) {
  return std::string("snapkv:scorer=").append(scorer).append(",layers=").append(layers).append(",heads=").append(heads);
}

bool needs_a_file(const EvictionOptions& options) { return options.reads_head_file(); }

TEST(Options, EveryPresetParsesAndPrintsItsName) {
  for (const MethodInfo& method : eviction_methods()) {
    EXPECT_EQ(method.name, method.options.method);
    EXPECT_FALSE(method.summary.empty());
    EXPECT_EQ(method.options.text(), method.name);
    if (needs_a_file(method.options)) {
      EXPECT_EQ(code_of(method.name), ErrorCode::kInvalidArgument) << method.name;
    } else {
      EXPECT_EQ(EvictionOptions::parse(method.name).text(), method.name);
    }
  }
}

TEST(Options, PresetsAreThoseOfTheSpecification) {
  const auto check = [](const char* name, const char* scorer, const char* layers, const char* heads, int window,
                        int sinks) {
    const EvictionOptions options = EvictionOptions::parse(name);
    EXPECT_EQ(options.scorer, scorer) << name;
    EXPECT_EQ(options.layers, layers) << name;
    EXPECT_EQ(options.heads, heads) << name;
    EXPECT_EQ(options.window, window) << name;
    EXPECT_EQ(options.sinks, sinks) << name;
  };
  check("streaming-llm", "streaming-llm", "uniform", "uniform", 32, 4);
  check("tova", "tova", "uniform", "uniform", 32, 0);
  check("snapkv", "snapkv", "uniform", "uniform", 32, 0);
  check("pyramidkv", "snapkv", "pyramid", "uniform", 8, 0);
  check("ada-snapkv", "snapkv", "uniform", "ada", 32, 0);
  check("ada-pyramidkv", "snapkv", "pyramid", "ada", 32, 0);
  check("lava", "lava", "lava", "flat", 32, 0);
  check("cake", "cake", "cake", "uniform", 32, 0);
  check("kvzip", "kvzip", "global", "global", 32, 4);
  check("kvzip+", "kvzip+", "global", "global", 32, 4);
  EXPECT_EQ(EvictionOptions::parse("kvzip").integer("floor"), 8);
  EXPECT_EQ(EvictionOptions::parse("snapkv:layers=global,heads=global").integer("floor"), 0);
  check("auto", "combined", "global", "global", 8, 4);
  check("auto-fast", "rms", "global", "global", 8, 4);
  EXPECT_EQ(EvictionOptions::parse("auto").fit, Fit::kValues);
  for (const char* text : {"8", "4", "3", "by-budget", "own", "8:0.3,4", "4:0.15,3", "8:0.1,3", "8/4", "4/3", "3/8",
                           "8:0.3,8/4", "8/4:0.5,4", "8/4:0.1,3"}) {
    EXPECT_EQ(EvictionOptions::parse("kvzip:bits=" + std::string(text) + ",window=16").get("bits"), text);
    EXPECT_EQ(
        EvictionOptions::parse(EvictionOptions::parse("kvzip:window=16,bits=" + std::string(text)).text()).get("bits"),
        text);
  }
  for (const char* text : {"2",       "16",    "",      "8:0.3", "4:0.3,8",     "3:0.3,4",   "3:0.3,3",
                           "8:0.3,8", "8:0,4", "8:1,4", "8:x,4", "8:0.3,4,4",   "8:0.3,",    ":0.3,4",
                           "8/",      "/4",    "8/5",   "8/4/3", "8/4:0.3,8/4", "8/3:0.3,4", "8/4:0.3,8"}) {
    EXPECT_THROW(EvictionOptions::parse("kvzip:bits=" + std::string(text)), Error) << text;
  }
  EXPECT_EQ(EvictionOptions::parse("auto").bits.rule, Bits::Rule::kByBudget);
  EXPECT_EQ(EvictionOptions::parse("auto:fast").text(), "auto-fast");
  EXPECT_EQ(EvictionOptions::parse("auto:fast,window=16,bits=4").text(), "auto-fast:window=16,bits=4");
  check("expected-attention", "expected-attention", "uniform", "uniform", 32, 4);
  EXPECT_EQ(EvictionOptions::parse("lava").text_of("group"), "max");
  EXPECT_EQ(EvictionOptions::parse("cake").text_of("pool"), "avg");
  EXPECT_EQ(EvictionOptions::parse("cake").integer("kernel"), 5);
  EXPECT_EQ(EvictionOptions::parse("expected-attention").number("ea-eps"), 0.0);
  EXPECT_FALSE(EvictionOptions::parse("full").evicts());
}

TEST(Options, CostsFollowFromThePartsNeeds) {
  const auto cost = [](const char* text) { return EvictionOptions::parse(text).cost(); };
  EXPECT_EQ(cost("full"), "nothing");
  EXPECT_EQ(cost("streaming-llm"), "nothing");
  EXPECT_EQ(cost("snapkv"), cost("lava"));
  EXPECT_NE(cost("snapkv"), "nothing");
  EXPECT_EQ(cost("kvzip"), "the prompt again");
  EXPECT_EQ(cost("snapkv:scorer=kvzip"), cost("kvzip"));
  EXPECT_NE(cost("h2o"), cost("h2o:last-rows=64"));
  EXPECT_NE(cost("critical-snapkv"), cost("snapkv"));
  EXPECT_NE(cost("expected-attention"), cost("snapkv"));
}

TEST(Options, TextRoundTrips) {
  for (const char* text : {"snapkv:window=16,pool=avg,kernel=5", "ada-snapkv:safeguard=minimum,alpha=0.25",
                           "lava:heads=ada,selector=critical", "random:seed=18446744073709551615", "pyramidkv:beta=7.5",
                           "cake:gamma=5,tau1=1.6,tau2=0.6", "tova:layers=pyramid,heads=flat,beta=3",
                           "snapkv:layers=global,heads=global", "h2o:last-rows=256", "kvzip:sinks=0,floor=0"}) {
    EXPECT_EQ(EvictionOptions::parse(text).text(), text);
  }
  EXPECT_EQ(EvictionOptions::parse("lava:select=critical").selector, "critical");
  EXPECT_EQ(EvictionOptions::parse("snapkv:window=32").text(), "snapkv");  // a default is not written
  // The defaults of options that only the new part reads are known, too.
  EXPECT_EQ(EvictionOptions::parse("snapkv:scorer=cake,gamma=7").text(), "snapkv:scorer=cake,gamma=7");
}

TEST(Options, TheSameMethodHoweverItIsWritten) {
  const auto same = [](const char* a, const char* b) {
    return is_same_method(EvictionOptions::parse(a), EvictionOptions::parse(b));
  };
  EXPECT_TRUE(same("full", "full"));
  EXPECT_TRUE(same("snapkv", "snapkv:window=32"));
  EXPECT_TRUE(same("snapkv:window=16,pool=avg", "snapkv:pool=avg,window=16"));
  EXPECT_TRUE(same("ada-snapkv", "snapkv:heads=ada"));
  EXPECT_TRUE(same("critical-ada-snapkv", "ada-snapkv:selector=critical"));
  EXPECT_FALSE(same("snapkv", "full"));
  EXPECT_FALSE(same("snapkv", "snapkv:window=16"));
  EXPECT_FALSE(same("snapkv", "ada-snapkv"));
  EXPECT_FALSE(same("random", "random:seed=1"));
  EXPECT_FALSE(same("snapkv", "pyramidkv"));
}

TEST(Options, EveryOptionPrintsWhatItReads) {
  const struct {
    const char *name, *value;
  } cases[] = {{"window", "16"},         {"sinks", "2"},
               {"rows", "max"},          {"pool", "none"},
               {"kernel", "9"},          {"order", "group-then-pool"},
               {"group", "max"},         {"last-rows", "64"},
               {"gamma", "0.5"},         {"tau1", "1.6"},
               {"tau2", "0.6"},          {"beta", "10"},
               {"head-beta", "1.5"},     {"floor", "2"},
               {"safeguard", "minimum"}, {"alpha", "0.75"},
               {"first-stage", "0.25"},  {"critical-eps", "0.001"},
               {"ea-eps", "0.02"},       {"ea-future", "64"},
               {"ea-skip", "0"},         {"seed", "7"},
               {"head-file", "a.json"},  {"profile", "b.json"},
               {"scorer", "lava"},       {"layers", "cake"},
               {"heads", "flat"},        {"selector", "critical"},
               {"fit", "values"},        {"bits", "4"},
               {"rms-weight", "0.5"},    {"repeat", "always"},
               {"question", "last"},     {"question-weight", "3"}};
  EXPECT_EQ(std::size(cases), option_rows().size());
  for (const auto& c : cases) {
    EvictionOptions options;
    options.set(c.name, c.value);
    EXPECT_EQ(find_option(c.name).get(options), c.value) << c.name;
    EXPECT_NE(find_option(c.name).get(options), find_option(c.name).get({})) << c.name << ": take another value";
  }
}

TEST(Options, UnknownNamesComeWithTheNearest) {
  const struct {
    const char *text, *nearest;
  } cases[] = {{"snapvk", "snapkv"},
               {"pyramid-kv", "pyramidkv"},
               {"", "full"},
               {"lavaa", "lava"},
               {"SnapKV", "snapkv"},
               {"snapkv:windw=3", "window"},
               {"snapkv:polo=max", "pool"},
               {"snapkv:scorer=tovaa", "tova"},
               {"snapkv:layers=pyramide", "pyramid"},
               {"snapkv:heads=adda", "ada"},
               {"snapkv:select=topk", "top-k"}};
  for (const auto& c : cases) {
    std::string message;
    EXPECT_EQ(code_of(c.text, &message), ErrorCode::kNotFound) << c.text;
    if (*c.text != '\0') {
      EXPECT_NE(message.find(std::string("'").append(c.nearest).append("'?")), std::string::npos) << message;
    }
  }
}

TEST(Options, BadValuesAndFormsAreRefused) {
  for (const char* text : {"snapkv:",
                           "snapkv:window",
                           "snapkv:window=",
                           "snapkv:window=-1",
                           "snapkv:window=1.5",
                           "snapkv:window=x",
                           "snapkv:window=99999999999999999999",
                           "snapkv:window=4,",
                           "snapkv:,window=4",
                           "snapkv:window=4,window=5",
                           "snapkv:sinks=-1",
                           "snapkv:rows=median",
                           "snapkv:pool=min",
                           "snapkv:kernel=0",
                           "snapkv:kernel=4",
                           "snapkv:kernel=-3",
                           "snapkv:order=both",
                           "snapkv:group=sum",
                           "h2o:last-rows=-1",
                           "cake:gamma=-1",
                           "cake:gamma=nan",
                           "cake:gamma=inf",
                           "cake:tau1=0",
                           "cake:tau2=-1",
                           "pyramidkv:beta=0.5",
                           "ada-snapkv:alpha=1.1",
                           "ada-snapkv:alpha=-0.1",
                           "ada-snapkv:safeguard=none",
                           "critical-snapkv:first-stage=2",
                           "critical-snapkv:critical-eps=-1",
                           "expected-attention:ea-eps=-1",
                           "expected-attention:ea-future=0",
                           "expected-attention:ea-skip=-1",
                           "random:seed=-1",
                           "full:window=3",
                           "full:scorer=snapkv"}) {
    EXPECT_EQ(code_of(text), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(Options, OptionsThatNoPartReadsAreRefused) {
  for (const char* text : {"snapkv:gamma=5", "tova:kernel=5", "streaming-llm:rows=max", "snapkv:alpha=0.3",
                           "lava:alpha=0.3", "snapkv:beta=3", "knorm:pool=avg", "snapkv:seed=3", "cake:rows=max",
                           "snapkv:first-stage=0.3", "snapkv:head-file=x", "snapkv:profile=x"}) {
    std::string message;
    EXPECT_EQ(code_of(text, &message), ErrorCode::kInvalidArgument) << text;
    EXPECT_NE(message.find("no part"), std::string::npos) << message;
  }
}

TEST(Options, CombinationsThatMeanNothingAreRefused) {
  for (const char* text : {"streaming-llm:select=critical", "random:select=critical", "knorm:select=critical",
                           "keydiff:select=critical", "vatp:select=critical", "snapkv:layers=global",
                           "snapkv:heads=global", "knorm:layers=lava", "keydiff:layers=lava", "snapkv:window=0",
                           "lava:window=0", "cake:window=1", "tova:layers=cake,window=1", "snapkv:heads=headkv"}) {
    EXPECT_EQ(code_of(text), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(Options, EveryOtherCombinationIsTaken) {
  for (const std::string& scorer : scorer_names()) {
    for (const std::string_view layers : {"uniform", "pyramid", "cake"}) {
      for (const std::string_view heads : {"uniform", "ada", "flat"}) {
        const std::string text = text_of(scorer, layers, heads);
        EXPECT_NO_THROW(EvictionOptions::parse(text)) << text;
      }
    }
  }
}

TEST(Options, AValueSetInAFieldIsCheckedToo) {
  EvictionOptions options = EvictionOptions::parse("snapkv");
  options.values["kernel"] = "4";
  test::expect_error(ErrorCode::kInvalidArgument, "give odd integer, 1 to 1023", [&] { options.validate(); });
  options = EvictionOptions::parse("snapkv");
  options.window = -3;
  test::expect_error(ErrorCode::kInvalidArgument, "give integer >= 0", [&] { options.validate(); });
}

}  // namespace
}  // namespace winnow
