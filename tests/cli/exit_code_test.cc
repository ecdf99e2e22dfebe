// The exit codes of docs/reference.md, over a table of command lines: 2 for wrong usage, 1 for failures.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {
namespace {

struct Case {
  int exit_code;
  std::vector<std::string> arguments;
  std::string part;  // of the message
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    std::string line = "winnow";
    for (const std::string& argument : one.arguments) line += " '" + argument + "'";
    SCOPED_TRACE(line);
    expect_error(run_tool(one.arguments), one.exit_code, one.part);
  }
}

TEST(ExitCodes, WrongNamesAreWrongUsage) {
  check(
      {{2, {"rnu"}, "did you mean run?"},
       {2, {"help", "nothing"}, "there is no command"},
       {2, {"--model", "x"}, "after a command"},
       {2, {"run", "--no-such-flag"}, "there is no flag"},
       {2, {"methods", "nothing"}, "there is no eviction method"},
       {2, {"run", "-p", "x", "--kv-evict", "nothing", "--kv-budget", "5"}, "--kv-evict: there is no eviction method"},
       {2, {"run", "-p", "x", "--kv-evict", "snapkv:nothing=1", "--kv-budget", "5"}, "there is no option"},
       {2, {"run", "-p", "x", "--kv-evict", "snapkv:gamma=1", "--kv-budget", "5"}, "no part of this method"},
       {2, {"bench", "--kv-evict", "nothing", "--kv-budget", "5"}, "--kv-evict: there is no eviction method"},
       {2, {"analyze", "-p", "x", "--methods", "nothing"}, "--methods: there is no eviction method"},
       {2, {"inspect", "-p", "x", "-o", "-", "--methods", "nothing"}, "--methods: there is no eviction method"},
       {2, {"calibrate", "-o", "x", "--scorer", "nothing"}, "--scorer: there is no eviction method"}});
}

TEST(ExitCodes, WrongValuesAreWrongUsage) {
  check({{2, {"run", "-p", ""}, "-p is empty"},
         {2, {"run", "-p", "x", "-q", ""}, "-q is empty"},
         {2, {"run", "-p", "x", "-n", "-2"}, "-n takes"},
         {2, {"run", "-p", "x", "-c", "-1"}, "-c takes"},
         {2, {"run", "-p", "x", "-t", "-1"}, "-t takes"},
         {2, {"run", "-p", "x", "-ctk", "f12"}, "-ctk: "},
         {2, {"run", "-p", "x", "-ctv", "q9_0"}, "-ctv: "},
         {2, {"run", "-p", "x", "-t", "100000"}, "-t takes a whole number from 0 to 512"},
         {2, {"run", "-p", "x", "-b", "2147483647"}, "-b takes a whole number from 1 to 65536"},
         {2, {"bench", "-t", "2,100000"}, "-t takes a whole number from 0 to 512"},
         {2, {"bench", "-b", "2147483647"}, "-b takes a whole number from 1 to 65536"},
         {2, {"run", "-p", "x", "--kv-limit", "5"}, "--kv-limit takes"},
         {2, {"run", "-p", "x", "--kv-limit", "1B"}, "--kv-limit takes a size of at least 4KiB"},
         {2, {"run", "-p", "x", "--json", ""}, "the output file is empty"},
         {2, {"run", "-p", "x", "--kv-evict", "snapkv", "--kv-budget", "kl=0.5"}, "no second pass"},
         {2, {"bench", "--kv-evict", "snapkv", "--kv-budget", "kl=0.5"}, "no second pass"},
         {2, {"analyze", "-p", "x", "--methods", "snapkv", "--budgets", "kl=0.5"}, "no second pass"},
         {2, {"serve", "-m", "none.gguf", "--pooling", "foo"}, "--pooling: "},
         {2, {"serve", "-m", "none.gguf", "--cors-origin", "foo"}, "--cors-origin takes"},
         {2, {"serve", "-m", "none.gguf", "--allow-host", "a b"}, "--allow-host takes"},
         {2, {"run", "-p", "x", "--prefill-weights", "f8"}, "--prefill-weights: "},
         {2, {"run", "-p", "x", "--device", "gpu"}, "--device: "},
         {2, {"bench", "--device", "cuda:"}, "--device: "},
         {2, {"serve", "--device", "host"}, "--device: "},
         {2, {"info", "--devices", "-m", "x"}, "-m has no effect"},
         {2, {"info", "--devices", "--device", "cuda"}, "--device has no effect"},
         {2, {"info", "--device", "gpu"}, "--device: "},
         {2, {"run", "-p", "x", "--kv-evict", "snapkv", "--kv-budget", "0%"}, "--kv-budget: "},
         {2, {"run", "-p", "x", "--kv-evict", "snapkv:window=-1", "--kv-budget", "5"}, "--kv-evict: "},
         {2, {"run", "-p", "x", "--kv-evict", "snapkv:", "--kv-budget", "5"}, "--kv-evict: "},
         {2, {"run", "-p", "x", "--kv-evict", "cake", "--kv-budget", "5%", "--kv-window", "1"}, "--kv-window: "},
         {2, {"run", "-p", "x", "--kv-evict", "snapkv", "--kv-budget", "5%", "--kv-decode", "cut:own:"}, "--kv-decode"},
         {2, {"chat", "-ctk", "f12"}, "-ctk: "},
         {2, {"chat", "-f", "-"}, "no effect"},
         {2, {"serve", "--port", "70000"}, "--port takes"},
         {2, {"serve", "--parallel", "257"}, "--parallel takes a number up to 256"},
         {2, {"serve", "-ctk", "f12"}, "-ctk: "},
         {2, {"bench", "-ctk", "f12"}, "-ctk: "},
         {2, {"bench", "--kv-evict", "snapkv", "--kv-budget", "5,0"}, "--kv-budget: "},
         {2, {"bench", "--prefill-weights", "f8"}, "--prefill-weights: "},
         {2, {"info", "--kv-budget", "200%"}, "--kv-budget: "},
         {2, {"info", "-ctk", "f12"}, "-ctk: "},
         {2, {"analyze", "-p", "x", "--budgets", "0%"}, "--budgets: "},
         {2, {"analyze", "-p", "x", "--methods", "full"}, "--methods: 'full'"},
         {2, {"analyze", "-p", "x", "-n", "1"}, "-n takes"}});
}

TEST(ExitCodes, FlagsThatContradictOrHaveNoEffectAreWrongUsage) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("out");
  check({{2, {"run", "-p", "x", "--json", file, "--kv-positions", file}, "--json and --kv-positions both write to"},
         {2, {"run", "-p", "x", "--json", "-", "--kv-positions", "-"}, "the standard output"},
         {2, {"analyze", "-p", "x", "--json", file, "--csv", file}, "--json and --csv both write to"},
         {2, {"analyze", "-p", "x", "--json", "-", "--csv", "-"}, "the standard output"},
         {2, {"inspect", "-p", "x", "-o", file, "--json", file}, "-o and --json both write to"},
         {2, {"bench", "-n", "0", "-np", "2"}, "-np has no effect with -n 0"},
         {2, {"bench", "-ctk", "f16,f16"}, "-ctk: the type f16 is given twice"},
         {2, {"info", "--devices", "-ctk", "q8_0"}, "-ctk has no effect"},
         {2, {"info", "--devices", "--kv-budget", "10%"}, "--kv-budget has no effect"},
         {2,
          {"run", "-p", "x", "--kv-budget", "9%", "--kv-evict", "snapkv:window=5", "--kv-window", "6"},
          "--kv-window and window=5 of --kv-evict contradict"},
         {2, {"report", "--out", "x", "results"}, "name the folders before the flags"},
         {2, {"eval", "--out", "x", "fidelity"}, "name benchmarks before the flags"}});
  EXPECT_TRUE(directory.names().empty());
}

TEST(ExitCodes, SamplingOutOfRangeIsWrongUsage) {
  const struct {
    std::string flag;
    std::vector<std::string> wrong;
  } flags[] = {{"--temp", {"-1", "-0.001", "100.5", "nan", "inf", "warm", ""}},
               {"--top-k", {"-2", "1.5", "99999999", "99999999999"}},
               {"--top-p", {"-0.1", "1.01", "nan"}},
               {"--min-p", {"-0.1", "1.01"}},
               {"--repeat-last-n", {"-1", "99999999"}},
               {"--repeat-penalty", {"0", "-1", "10001"}},
               {"--presence-penalty", {"-10001", "10001"}},
               {"--frequency-penalty", {"-10001", "10001"}},
               {"--typical", {"-0.1", "1.1"}},
               {"--top-nsigma", {"-2"}},
               {"--xtc-probability", {"-0.1", "1.1"}},
               {"--xtc-threshold", {"-0.1", "1.1"}},
               {"--dynatemp-range", {"-1"}},
               {"--dry-multiplier", {"-1"}},
               {"--dry-allowed-length", {"-1"}},
               {"--dry-penalty-last-n", {"-2"}},
               {"--mirostat", {"-1", "3"}},
               {"-s", {"-2", "1.5", "4294967296"}}};
  for (const auto& [flag, wrong] : flags) {
    for (const std::string& value : wrong) check({{2, {"run", "-p", "x", flag, value}, flag + " takes a "}});
  }
  check({{2, {"chat", "--temp", "-1"}, "--temp takes a number from 0 to 100"},
         {2, {"serve", "--temp", "-1"}, "--temp takes a number from 0 to 100"},
         {1, {"run", "-m", "none.gguf", "-p", "x", "-s", "4294967295"}, "none.gguf"}});
}

TEST(ExitCodes, SamplersWithoutEffectAreWrongUsage) {
  const auto run = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "-p", "x"});
    return flags;
  };
  check({{2, run({"--repeat-last-n", "32"}), "no effect without"},
         {2, {"chat", "--repeat-last-n", "32"}, "no effect without"},
         {2, run({"--xtc-threshold", "0.3"}), "no effect without"},
         {2, run({"--dry-base", "3"}), "no effect without"},
         {2, run({"--dry-sequence-breaker", "x"}), "no effect without"},
         {2, run({"--mirostat-ent", "3"}), "no effect without"},
         {2, run({"--dynatemp-exp", "3"}), "no effect without"},
         {2, run({"--mirostat", "2", "--temp", "0"}), "no effect without"},
         {2, run({"--mirostat", "2", "--top-k", "5"}), "no effect with mirostat"},
         {2, run({"--samplers", "top_k", "--typical", "0.5"}), "no effect: "},
         {2, run({"--samplers", "top_k;odd"}), "no sampler 'odd'"},
         {2, run({"--samplers", "top_k;top_k"}), "named twice"},
         {2, run({"--logit-bias", "5"}), "--logit-bias takes"},
         {2, run({"-l", "5+x"}), "--logit-bias takes"}});
}

TEST(ExitCodes, FilesAndLimitsAreErrors) {
  const TemporaryDirectory directory;
  const std::string missing = directory.file("missing");
  check({{1, {"run", "-m", missing, "-p", "x"}, "missing"},
         {1, {"run", "-f", missing}, "No such file"},
         {1, {"run", "-f", directory.write("empty", "")}, "the prompt is empty"},
         {1, {"run", "-p", "x", "--grammar-file", missing}, "No such file"},
         {1, {"run", "-p", "x", "--kv-evict", "headkv:head-file=" + missing, "--kv-budget", "5"}, "missing"},
         {1, {"run", "-p", "x", "--json", missing + "/report"}, "missing/report"},
         {1, {"calibrate", "-f", missing, "-o", directory.file("profile")}, "No such file"},
         {1, {"info", "-m", directory.write("text", "no model")}, "text"}});
}

TEST(ExitCodes, OutputThatCannotBeWrittenIsAnError) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--version"},
                                                {"--help"},
                                                {"run", "--help"},
                                                {"methods"},
                                                {"methods", "snapkv"},
                                                {"methods", "--json", "-"},
                                                {"completion", "bash"},
                                                {"info", "--devices"}}) {
    SCOPED_TRACE(words.front());
    ProcessOptions options;
    options.output = "/dev/full";
    expect_error(run_tool(words, options), 1, "the standard output failed: No space left on device");
  }
}

}  // namespace
}  // namespace winnow::test
