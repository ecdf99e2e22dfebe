// The tool with a real model. Needs WINNOW_TEST_MODEL, a small instruction-tuned one.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/tool_with_model.h"

namespace winnow::test {
namespace {

std::int64_t sum_of_kept(const Json& report) {
  std::int64_t sum = 0;
  for (const Json& layer : report["kv"]["kept"]) {
    for (const Json& head : layer) sum += head.get<std::int64_t>();
  }
  return sum;
}

Words keys(const Json& json) {
  Words names;
  for (const auto& item : json.items()) names.push_back(item.key());
  return names;
}

TEST_F(ToolWithModel, StreamsTextAndPrintsStatistics) {
  take_whole_model();
  const ProcessResult result = tool("run", {"-p", "The capital of France is", "-n", "8", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
  for (const char* word : {"prompt", "generated", "kept", "peak", "t/s"}) {
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " is not in: " << result.err;
  }
  // Without a terminal there is no progress bar.
  EXPECT_EQ(result.err.find('\r'), std::string::npos);
}

// oneDNN and winnow's kernels are limited to an older processor's instructions. The prompt is long enough for products
// of many rows, for which PrefillWeights::kAuto takes bf16 only where there are instructions for it.
TEST_F(ToolWithModel, AnswersTheSameOnEveryInstructionSet) {
  take_whole_model();
  const std::string prompt = long_text().substr(0, 400) + "\nThe capital of France is";
  const std::pair<const char*, const char*> machines[] = {
      {"", ""}, {"AVX3", "AVX512_CORE"}, {"AVX2", "AVX2"}, {"SSE4", "SSE41"}};
  for (const auto& [winnow_isa, onednn_isa] : machines) {
    ProcessOptions options;
    options.environment = {{"WINNOW_ISA", winnow_isa}, {"DNNL_MAX_CPU_ISA", onednn_isa}};
    if (run_tool({"--version"}, options).exit_code != 0) continue;  // not available on this machine
    const ProcessResult result = tool("run", {"-p", prompt, "-n", "4", "--temp", "0"}, options);
    EXPECT_EQ(result.exit_code, 0) << winnow_isa << ": " << result.err;
    EXPECT_NE(result.out.find("Paris"), std::string::npos) << winnow_isa << ": " << result.out;
    if (*winnow_isa == '\0') continue;
    expect_error(tool("run", {"-p", prompt, "-n", "1", "--prefill-weights", "bf16"}, options), 1,
                 "does not multiply bf16");
  }
}

// The system or a busy machine may give a team fewer threads than it asked for.
TEST_F(ToolWithModel, AnswersTheSameOnFewerThreadsThanAskedFor) {
  const Words flags{"run", "-m", model_, "-t", "3", "-p", long_text(), "-n", "8", "--temp", "0"};
  const ProcessResult expected = run_tool(flags);
  EXPECT_EQ(expected.exit_code, 0) << expected.err;
  for (const char* limit : {"1", "2"}) {
    ProcessOptions options;
    options.environment["OMP_THREAD_LIMIT"] = limit;
    const ProcessResult result = run_tool(flags, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected.out) << limit;
  }
}

// Memory that ends while a model loads, a prompt is read or threads start gives an error and never a signal.
TEST_F(ToolWithModel, EndsInAnErrorWhereTheAddressSpaceEnds) {
  const std::size_t mebibyte = std::size_t{1} << 20;
  const std::size_t model_bytes = std::filesystem::file_size(model_);
  int n_errors = 0, n_answers = 0;
  for (std::size_t more = 40; more <= 160; more += 5) {
    ProcessOptions options;
    options.address_space = model_bytes + more * mebibyte;
    if (run_tool({"--version"}, options).exit_code != 0) continue;  // the libraries do not load
    const ProcessResult result =
        run_tool({"run", "-m", model_, "-t", "3", "-p", long_text().substr(0, 400), "-n", "2", "--temp", "0"}, options);
    EXPECT_EQ(result.signal, 0) << more << " MiB: " << result.err;
    if (result.exit_code == 0) {
      ++n_answers;
    } else {
      ++n_errors;
      EXPECT_EQ(result.exit_code, 1) << more << " MiB: " << result.err;
      EXPECT_EQ(result.err.rfind("error: ", 0), 0u) << more << " MiB: " << result.err;
    }
  }
  EXPECT_GT(n_errors, 0);
  EXPECT_GT(n_answers, 0);
}

TEST_F(ToolWithModel, PromptFromFileAndPipeAndFlagAreTheSame) {
  const std::string text = "Once upon a time";
  ProcessOptions piped;
  piped.input = text + "\n";
  const std::string expected = tool("run", {"-p", text, "-n", "8", "--temp", "0"}).out;
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(tool("run", {"-f", directory_.write("prompt", text + "\n"), "-n", "8", "--temp", "0"}).out, expected);
  EXPECT_EQ(tool("run", {"-f", "-", "-n", "8", "--temp", "0"}, piped).out, expected);
  EXPECT_EQ(tool("run", {"-n", "8", "--temp", "0"}, piped).out, expected);
}

TEST_F(ToolWithModel, ReportKeepsTheContract) {
  const std::string path = directory_.file("report.json");
  const ProcessResult result = tool("run", {"-p", long_text(), "-n", "5", "-s", "7", "--json", path, "--ignore-eos",
                                            "--kv-evict", "snapkv", "--kv-budget", "25%"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(directory_.names().size(), 1u) << "a temporary file was left";
  const Json json = Json::parse(read_bytes(path));
  EXPECT_EQ(keys(json), (Words{"generated_tokens", "kv", "memory", "prompt_tokens", "text", "timing", "token_ids"}));
  EXPECT_EQ(keys(json["kv"]),
            (Words{"bytes_full", "bytes_kept", "bytes_peak", "entries_full", "entries_kept", "kept", "method"}));
  EXPECT_EQ(keys(json["timing"]),
            (Words{"decode_s", "decode_tps", "evict_s", "load_s", "prefill_s", "prefill_tps", "ttft_s"}));
  EXPECT_EQ(keys(json["memory"]), (Words{"hidden_bytes", "rss_peak_bytes", "staging_bytes"}));
  EXPECT_EQ(json["generated_tokens"], 5);
  EXPECT_EQ(json["token_ids"].size(), 5u);
  EXPECT_EQ(json["text"], result.out);
  EXPECT_EQ(json["kv"]["method"], "snapkv");
  EXPECT_EQ(sum_of_kept(json), json["kv"]["entries_kept"]);
  EXPECT_LT(json["kv"]["entries_kept"], json["kv"]["entries_full"]);
  EXPECT_GE(json["kv"]["bytes_peak"], json["kv"]["bytes_kept"]);
  EXPECT_GT(json["timing"]["prefill_tps"], 0);
  EXPECT_GT(json["timing"]["ttft_s"], 0);
  EXPECT_GT(json["memory"]["rss_peak_bytes"], 1 << 20);
}

// Shares of bytes relate to f16, whatever types are stored: auto at 10 % of the bytes keeps more than a tenth of the
// entries.
TEST_F(ToolWithModel, SharesOfBytesAreThoseOfTheBudget) {
  const std::string path = directory_.file("report.json");
  const ProcessResult result =
      tool("run", {"-p", long_text(), "-n", "1", "--json", path, "--ignore-eos", "--kv-budget", "10%bytes"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json kv = Json::parse(read_bytes(path))["kv"];
  const double share = kv["bytes_kept"].get<double>() / kv["bytes_full"].get<double>();
  EXPECT_NEAR(share, 0.1, 0.005);
  EXPECT_GT(kv["entries_kept"].get<double>() / kv["entries_full"].get<double>(), 0.15);
  char shown[40];
  std::snprintf(shown, sizeof shown, " in f16 (%.1f %%)", 100 * share);
  EXPECT_NE(result.err.find(shown), std::string::npos) << result.err;
}

TEST_F(ToolWithModel, BudgetIsExact) {
  const Json full = report({"-p", long_text(), "-n", "1"});
  const Json part = report({"-p", long_text(), "-n", "1", "--kv-evict", "ada-snapkv", "--kv-budget", "128"});
  const auto n_heads = static_cast<std::int64_t>(full["kv"]["kept"].size() * full["kv"]["kept"][0].size());
  EXPECT_EQ(full["kv"]["entries_kept"], full["kv"]["entries_full"]);
  EXPECT_EQ(full["kv"]["entries_full"], full["prompt_tokens"].get<std::int64_t>() * n_heads);
  EXPECT_EQ(part["kv"]["entries_kept"], 128 * n_heads);
}

TEST_F(ToolWithModel, ChunkedPrefillBoundsThePeak) {
  const Words flags{"-p", long_text(), "-n", "1", "--kv-evict", "snapkv", "--kv-budget", "64"};
  Words chunked_flags = flags;
  chunked_flags.insert(chunked_flags.end(), {"--prefill", "chunked", "--prefill-chunk", "128"});
  const Json chunked = report(chunked_flags);
  EXPECT_EQ(chunked["kv"]["entries_kept"], report(flags)["kv"]["entries_kept"]);
  EXPECT_LT(chunked["kv"]["bytes_peak"], chunked["kv"]["bytes_full"].get<double>() / 2);
}

TEST_F(ToolWithModel, BudgetAboveThePromptChangesNothing) {
  const Json full = report({"-p", long_text(), "-n", "6"});
  const Json all = report({"-p", long_text(), "-n", "6", "--kv-evict", "snapkv", "--kv-budget", "100000"});
  EXPECT_EQ(full["token_ids"], all["token_ids"]);
  EXPECT_EQ(full["kv"]["entries_kept"], all["kv"]["entries_kept"]);
}

TEST_F(ToolWithModel, BudgetsBelowWhatIsProtected) {
  take_whole_model();
  for (const Words& flags :
       {Words{"--kv-budget", "8", "--kv-sinks", "8"}, Words{"--kv-budget", "1%", "--kv-sinks", "40"},
        Words{"--kv-budget", "1MiB", "--kv-sinks", "60"},
        Words{"--kv-budget", "64", "--kv-window", "60", "--kv-sinks", "64"}}) {
    Words all{"-p", long_text(), "-n", "1", "--kv-evict", "snapkv"};
    all.insert(all.end(), flags.begin(), flags.end());
    SCOPED_TRACE(flags.back());
    expect_error(tool("run", all), 1, "window");
  }
}

TEST_F(ToolWithModel, BytesThatCannotHoldAPageForEveryHead) {
  expect_error(tool("run", {"-p", long_text(), "-n", "1", "--kv-evict", "snapkv", "--kv-budget", "1KiB"}), 1,
               "one page per head");
}

TEST_F(ToolWithModel, QuestionAfterTheContextStaysWhole) {
  const Words flags{"-p",          long_text(), "-q",         "What did the traveller find on day 3?",
                    "-n",          "1",         "--kv-evict", "streaming-llm",
                    "--kv-budget", "64"};
  const Json agnostic = report(flags);
  Words aware_flags = flags;
  aware_flags.push_back("--question-aware");
  const Json aware = report(aware_flags);
  EXPECT_EQ(agnostic["prompt_tokens"], aware["prompt_tokens"]);
  const auto n_heads = static_cast<std::int64_t>(aware["kv"]["kept"].size() * aware["kv"]["kept"][0].size());
  EXPECT_EQ(aware["kv"]["entries_kept"], 64 * n_heads);
  EXPECT_GT(agnostic["kv"]["entries_kept"], 64 * n_heads + 5 * n_heads);
}

TEST_F(ToolWithModel, QuestionInSightWeighs) {
  const auto method = [&](const Words& more) {
    Words flags{"-p", long_text(), "-n", "1", "--kv-evict", "auto-fast", "--kv-budget", "20%"};
    flags.insert(flags.end(), more.begin(), more.end());
    return report(flags)["kv"]["method"].get<std::string>();
  };
  EXPECT_EQ(method({"-q", "What did the traveller find on day 3?"}), "auto-fast");
  EXPECT_EQ(method({"-q", "What did the traveller find on day 3?", "--question-aware"}), "auto-fast:question=last");
  EXPECT_EQ(method({"--chat"}), "auto-fast:question=last");
  EXPECT_EQ(method({}), "auto-fast");
}

TEST_F(ToolWithModel, QuestionIsAnsweredThroughTheChatTemplate) {
  take_whole_model();
  const Json json = report({"-p", "The harbour master keeps the key of the lighthouse in a blue tin.", "-q",
                            "Where is the key?", "-n", "24"});
  // Rounding decides what the small model adds to this.
  EXPECT_TRUE(json["text"].get<std::string>().starts_with("The key is in a blue tin.")) << json["text"];
}

TEST_F(ToolWithModel, PromptThatTheContextCannotHold) {
  expect_error(tool("run", {"-p", long_text(), "-c", "64"}), 1, "raise -c");
}

TEST_F(ToolWithModel, ContextBeyondTheTrainedOneIsAWarning) {
  const Words flags{"-p", "One two three", "-n", "1", "--temp", "0", "-c"};
  const auto with = [&](const std::string& n_ctx) {
    Words all = flags;
    all.push_back(n_ctx);
    return tool("run", all);
  };
  const std::int64_t n_trained =
      Json::parse(tool("info", {"--json", "-"}).out)["model"]["n_ctx_train"].get<std::int64_t>();
  const ProcessResult within = with(std::to_string(n_trained)), beyond = with(std::to_string(n_trained + 1));
  EXPECT_EQ(within.exit_code, 0) << within.err;
  EXPECT_EQ(within.err.find("warning"), std::string::npos) << within.err;
  EXPECT_EQ(beyond.exit_code, 0) << beyond.err;
  EXPECT_TRUE(beyond.err.starts_with("warning: -c " + std::to_string(n_trained + 1))) << beyond.err;
  EXPECT_NE(beyond.err.find(std::to_string(n_trained) + " tokens that the model was trained on"), std::string::npos);
  EXPECT_EQ(beyond.out, within.out);
  ProcessOptions message;
  message.input = "Hello!\n";
  const ProcessResult chat = tool("chat", {"-n", "1", "--temp", "0", "-c", std::to_string(n_trained + 1)}, message);
  EXPECT_TRUE(chat.err.starts_with("warning: -c ")) << chat.err;
}

TEST_F(ToolWithModel, FullContextEndsTheText) {
  const ProcessResult result = tool("run", {"-p", "One two three", "-c", "16", "--ignore-eos", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("the context is full"), std::string::npos) << result.err;
}

TEST_F(ToolWithModel, InvalidUtf8) {
  expect_error(tool("run", {"-f", directory_.write("bytes", "good \xFF\xFE bad"), "-n", "1"}), 1, "UTF-8");
}

TEST_F(ToolWithModel, LimitThatCannotHoldThePrompt) {
  expect_error(tool("run", {"-p", long_text(), "-n", "1", "--kv-limit", "256KiB"}), 1, "limit");
}

TEST_F(ToolWithModel, TruncatedModels) {
  const std::string bytes = read_bytes(model_);
  for (const std::size_t size :
       {std::size_t{20}, std::size_t{300}, std::size_t{60000}, bytes.size() / 2, bytes.size() - 100}) {
    SCOPED_TRACE(size);
    const std::string path = directory_.write("part.gguf", bytes.substr(0, size));
    expect_error(run_tool({"run", "-m", path, "-p", "x", "-n", "1"}), 1, "part.gguf");
  }
}

TEST_F(ToolWithModel, Grammar) {
  const Words flags{"-p", "Is water wet? Answer:", "-n", "8", "--temp", "0", "--grammar"};
  Words yes_or_no = flags, broken = flags;
  yes_or_no.push_back("root ::= \" yes\" | \" no\"");
  broken.push_back("root ::= (");
  const std::string text = tool("run", yes_or_no).out;
  EXPECT_TRUE(text == " yes" || text == " no") << text;
  expect_error(tool("run", broken), 2, "--grammar: ");
  Words file{"-p", "x", "--grammar-file", directory_.write("rules", "root ::= (")};
  expect_error(tool("run", file), 1, "rules': ");
}

TEST_F(ToolWithModel, BiasOfATokenThatIsNotThere) {
  expect_error(tool("run", {"-p", "x", "-n", "1", "-l", "99999999+1"}), 2, "names no token of the model");
}

TEST_F(ToolWithModel, ATemplatesByteOrderMarkIsNoText) {
  const std::string text = "{% for m in messages %}{{ m.content }}{% endfor %}", mark = "\xEF\xBB\xBF";
  const auto n_tokens = [&](const std::string& content) {
    return report(
        {"-p", "One", "--chat", "-n", "1", "--chat-template-file", directory_.write("t", content)})["prompt_tokens"];
  };
  EXPECT_EQ(n_tokens(mark + text), n_tokens(text));
}

// A script takes a file for a whole answer.
TEST_F(ToolWithModel, InterruptEndsWithStatisticsAndWritesNoFile) {
  ProcessOptions options;
  options.react_after = 8;
  options.then_interrupt = true;
  const std::string path = directory_.file("report.json");
  const ProcessResult result = tool("run", {"-p", "Count:", "-n", "6000", "--ignore-eos", "--json", path}, options);
  EXPECT_FALSE(result.timed_out);
  ASSERT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("interrupted"), std::string::npos);
  EXPECT_NE(result.err.find("generated"), std::string::npos);
  EXPECT_FALSE(result.out.empty());
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(ToolWithModel, InterruptEndsThePrefill) {
  ProcessOptions options;
  options.react_after = 1;  // the output of -v begins with the prefill
  options.then_interrupt = true;
  std::string text;
  for (int i = 0; i < 5; ++i) text += long_text();
  const ProcessResult result = tool("run", {"-p", text, "-n", "1", "-v", "--json", "-"}, options);
  EXPECT_FALSE(result.timed_out);
  ASSERT_EQ(result.exit_code, 130) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["prompt_tokens"], 0);
  EXPECT_EQ(json["generated_tokens"], 0);
}

TEST_F(ToolWithModel, ReaderThatLeavesEndsTheRunQuietly) {
  ProcessOptions options;
  options.react_after = 1;
  options.then_close_output = true;
  const ProcessResult result = tool("run", {"-p", "Count:", "-n", "6000", "--ignore-eos"}, options);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(ToolWithModel, BudgetsOfALossAreFoundAndReported) {
  const Words flags{"-p", long_text(), "-n", "2", "--ignore-eos", "--kv-budget", "kl=0.5"};
  const Json json = report(flags);
  const Json& promise = json["kv"]["promise"];
  ASSERT_TRUE(promise.is_object());
  EXPECT_EQ(promise["asked"], 0.5);
  EXPECT_LE(promise["expected"], 0.5);
  EXPECT_EQ(promise["budget"], promise["tried"].back()["budget"]);
  EXPECT_EQ(promise["n_tokens"], std::min(json["prompt_tokens"].get<int>() / 8, 128));
  EXPECT_LT(json["kv"]["entries_kept"], json["kv"]["entries_full"]);
  Words in_words = flags;
  in_words.insert(in_words.end(), {"--temp", "0"});
  const ProcessResult text = tool("run", in_words);
  EXPECT_NE(text.err.find("promise    " + promise["budget"].get<std::string>()), std::string::npos) << text.err;

  const ProcessResult whole = tool("run", {"-p", "One two three", "-n", "1", "--kv-budget", "kl=0.5"});
  EXPECT_EQ(whole.exit_code, 0);
  EXPECT_NE(whole.err.find("kept whole"), std::string::npos) << whole.err;
  expect_error(tool("run", {"-p", long_text(), "--kv-budget", "kl=0.0001"}), 1, "allow more");
  expect_error(tool("run", {"-p", "One", "--kv-evict", "snapkv", "--kv-budget", "kl=0.02"}), 2, "second pass");
  expect_error(tool("run", {"-p", "One", "--kv-budget", "kl=0.02", "--prefill", "chunked"}), 1, "chunked prefill");
  expect_error(tool("info", {"--kv-budget", "kl=0.02"}), 2, "no fixed size without a prompt");
}

TEST_F(ToolWithModel, InfoCountsBytes) {
  const ProcessResult result = tool("info", {"--json", "-", "--kv-budget", "512"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  const Json& model = json["model"];
  const std::int64_t rows = model["n_layer"].get<std::int64_t>() * model["n_kv_head"].get<std::int64_t>();
  const std::int64_t entry = 2 * 2 * model["head_dim"].get<std::int64_t>() + 2;  // keys and values in f16, position
  EXPECT_EQ(json["kv"]["bytes_per_token"], rows * entry);
  const Json& first = json["contexts"][0];
  EXPECT_EQ(first["kv_bytes"]["full"], first["n_tokens"].get<std::int64_t>() * rows * entry);
  EXPECT_EQ(first["kv_bytes"]["512"], 512 * rows * entry);
  EXPECT_GT(json["fits"]["512"], json["fits"]["full"]);
  // The engine counts the same bytes.
  const Json run = report({"-p", "One two three", "-n", "1"});
  EXPECT_EQ(run["kv"]["bytes_full"], run["prompt_tokens"].get<std::int64_t>() * rows * entry);
}

TEST_F(ToolWithModel, BenchRows) {
  const Words flags{"-p", "32",         "-n",   "4",          "-d",     "0,128",       "-r",
                    "2",  "--kv-evict", "full", "--kv-evict", "snapkv", "--kv-budget", "64"};
  Words json_flags = flags, csv_flags{"-p", "32", "-n", "0", "-r", "1", "-o", "csv"};
  json_flags.insert(json_flags.end(), {"-o", "json"});
  const Words markdown_flags{"-p", "32", "-n", "4", "-d", "64", "-r", "1", "--kv-evict", "snapkv", "--kv-budget", "48"};
  const ProcessResult result = tool("bench", json_flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json rows = Json::parse(result.out);
  ASSERT_EQ(rows.size(), 8u);
  for (const Json& row : rows) {
    for (const char* key : {"build_commit", "model_filename", "model_type", "model_size", "model_n_params", "n_batch",
                            "n_threads", "type_k", "type_v", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns",
                            "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["samples_ts"].size(), 2u);
    EXPECT_GT(row["avg_ts"], 0);
  }
  EXPECT_EQ(rows[0]["kv_entries_kept"], rows[0]["kv_entries_full"]);
  const Json& cut = rows[7];  // tg4 @ d128 with snapkv at 64
  EXPECT_EQ(cut["n_depth"], 128);
  EXPECT_EQ(cut["kv_method"], "snapkv");
  EXPECT_LT(cut["kv_entries_kept"], cut["kv_entries_full"]);

  // A budget without a method is a budget of auto, which chooses the types of entries.
  const Json chosen =
      Json::parse(tool("bench", {"-p", "320", "-n", "0", "-r", "1", "--kv-budget", "12%bytes", "-o", "json"}).out);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0]["kv_method"], "auto");
  EXPECT_EQ(chosen[0]["type_k"], "q8_0+r4");  // the best entries have more bits
  EXPECT_EQ(chosen[0]["type_v"], "q8_0+r4");

  const std::string markdown = tool("bench", markdown_flags).out;
  for (const char* cell : {"pp32 @ d64", "tg4 @ d64", "snapkv", "±"}) {
    EXPECT_NE(markdown.find(cell), std::string::npos) << cell;
  }
  const std::string csv = tool("bench", csv_flags).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2) << csv;
}

}  // namespace
}  // namespace winnow::test
