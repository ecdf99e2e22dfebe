// winnow calibrate: an LU-KV profile for a model and a scorer.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/text_file.h"
#include "study/calibrate/calibration.h"
#include "study/calibrate/questions.h"
#include "study/calibrate/scorer_choice.h"
#include "study/passages.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow::cli {
namespace {

constexpr const char* kShippedText = "treasure-island.txt";
constexpr std::int64_t kLastSecond = 253'402'300'799;  // of the year 9999, the last with four digits

struct CalibrateFlags {
  ModelFlags model;
  std::string scorer = "snapkv";
  std::vector<std::string> files;
  std::optional<std::string> questions;
  int n_samples = 16;
  int n_tokens = 2000;
  int n_decode = 64;
  int seed = 0;
  bool no_chat = false;
  std::string output;
};

constexpr const char* kCalibrateExamples =
    "  winnow calibrate --scorer snapkv -o snapkv.json\n"
    "  winnow calibrate -m model.gguf --scorer keydiff -f one.txt -f two.txt \\\n"
    "      --samples 32 --tokens 4000 -o keydiff.json\n"
    "  winnow run -m model.gguf -f book.txt -q \"Who is the narrator?\" \\\n"
    "      --kv-evict lu-kv-keydiff:profile=keydiff.json --kv-budget 10%\n";

bool parse_flags(const Arguments& arguments, CalibrateFlags& flags) {
  CommandLine line("winnow calibrate", "-o FILE [flags]",
                   "Learns from sample prompts how best to share a budget among a model's heads under a scorer, and "
                   "writes the profile that the lu-kv methods use. Repeat the command to continue an interrupted run; "
                   "finished samples are kept in FILE.partial.",
                   kCalibrateExamples);
  line.group("Model");
  add_model_flag(line, flags.model);
  add_engine_flags(line, flags.model);
  line.group("Samples");
  line.text("--scorer", "SCORER", flags.scorer,
            "scorer to learn for: SCORER[:option=value,...] as in --kv-evict, with the defaults of its lu-kv preset if "
            "it has one; with fit=values, as in auto, heads are judged by the error that remains after refitting "
            "values (default: snapkv)");
  line.texts("-f,--file", "FILE", '\0', flags.files,
             "text to take contexts from; repeat the flag for several (default: the novel that comes with winnow)");
  line.text("--questions", "FILE", flags.questions,
            "questions to ask, one JSON object per line: {\"question\": \"...\"} (default: some that fit any text)");
  line.integer("--samples", flags.n_samples, 1, "number of contexts, each with one question (default: 16)");
  line.integer("--tokens", flags.n_tokens, 16, "number of tokens per context (default: 2000)");
  line.integer("--decode", flags.n_decode, 1, "maximum number of tokens per answer (default: 64)");
  line.integer("-s,--seed", flags.seed, 0, "seed for the choice of contexts (default: 0)");
  line.flag("--no-chat", flags.no_chat, "do not apply the model's chat template");
  line.group("Output");
  line.text("-o,--output", "FILE", flags.output, "file to write the profile to");
  if (!line.parse(arguments)) return false;
  if (flags.output.empty()) throw UsageError("the profile needs a file: name it with -o FILE");
  if (flags.output == "-") throw UsageError("the profile cannot go to the standard output: name a file with -o FILE");
  return true;
}

std::vector<std::string> read_texts(const CalibrateFlags& flags) {
  std::vector<std::string> texts;
  for (const std::string& path : flags.files) {
    texts.push_back(read_running_text(path));
    if (texts.back().find_first_not_of(" \t\r\n") != std::string::npos) continue;
    throw Error(ErrorCode::kInvalidArgument, "'" + path + "' is empty: give a text to take contexts from");
  }
  if (!texts.empty()) return texts;
  std::error_code ignored;
  for (const std::string& folder : UtilityProfile::folders()) {
    const std::filesystem::path path = std::filesystem::path(folder) / kShippedText;
    if (std::filesystem::exists(path, ignored)) return {read_running_text(path.string())};
  }
  throw Error(ErrorCode::kNotFound, std::string("the text that comes with winnow, ") + kShippedText +
                                        ", is missing: give a text with -f FILE");
}

// Returns the day in UTC; SOURCE_DATE_EPOCH sets it as it does for other tools.
std::string today() {
  std::time_t now = std::time(nullptr);
  if (const char* given = std::getenv("SOURCE_DATE_EPOCH"); given != nullptr && *given != '\0') {
    now = parse_wide_integer("SOURCE_DATE_EPOCH", given, 0, kLastSecond);
  }
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char buffer[16];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d", &parts);
  return buffer;
}

std::vector<CalibrationSample> make_samples(const Model& model, const CalibrateFlags& flags,
                                            const std::vector<std::string>& texts,
                                            const std::vector<std::string>& questions) {
  const std::vector<std::string> contexts =
      choose_passages(model, texts, flags.n_samples, flags.n_tokens, static_cast<std::uint64_t>(flags.seed));
  std::vector<CalibrationSample> samples;
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    SplitPrompt prompt{contexts[i], "\n\n" + questions[i % questions.size()]};
    if (!flags.no_chat && model.has_chat_template()) prompt = split_chat(model, "", prompt.before, prompt.after);
    PromptTokens parts = tokenize(model, prompt);
    samples.push_back({std::move(parts.context), std::move(parts.question)});
  }
  return samples;
}

std::string duration_text(double seconds) {
  return seconds < 100 ? fixed_text(seconds, 0) + " s" : fixed_text(seconds / 60, 0) + " min";
}

}  // namespace

int calibrate_command(const Arguments& arguments) {
  CalibrateFlags flags;
  if (!parse_flags(arguments, flags)) return 0;

  EvictionOptions method = value_of("--scorer", [&] { return choose_scorer(flags.scorer); });
  const OutputFile probe(flags.output);  // checks the path before the work is done
  const std::vector<std::string> texts = read_texts(flags);
  const std::vector<std::string> questions = flags.questions ? read_questions(*flags.questions) : generic_questions();
  const std::shared_ptr<const Model> model = Model::load(model_path(flags.model), model_options(flags.model));
  Calibration calibration(Engine::create(model, engine_options(flags.model)),
                          {.method = method,
                           .n_decode = flags.n_decode,
                           .n_tokens = flags.n_tokens,
                           .seed = static_cast<std::uint64_t>(flags.seed),
                           .date = today()},
                          make_samples(*model, flags, texts, questions), flags.output + ".partial");

  const int n_before = calibration.n_done(), n_samples = calibration.n_samples();
  std::fprintf(stderr, "%s, %d samples of %s tokens%s\n", method.scorer_text().c_str(), n_samples,
               count_text(flags.n_tokens).c_str(),
               n_before > 0 ? (", " + std::to_string(n_before) + " of them done already").c_str() : "");
  Interrupt interrupt;
  const Stopwatch stopwatch;
  try {
    ProgressBar bar("calibrate");
    constexpr double kSteps = 1000;  // steps of a sample
    while (calibration.n_done() < n_samples) {
      const int n_new = calibration.n_done() - n_before;
      calibration.step([&](double part) {
        bar.update(static_cast<std::int64_t>((n_new + part) * kSteps),
                   static_cast<std::int64_t>((n_samples - n_before) * kSteps));
        return !interrupt.requested();
      });
      if (bar.is_on_terminal()) continue;
      const double left = stopwatch.seconds() / (n_new + 1) * (n_samples - calibration.n_done());
      std::fprintf(stderr, "sample %d of %d, %s left\n", calibration.n_done(), n_samples, duration_text(left).c_str());
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
    std::fprintf(stderr, "interrupted after sample %d of %d: run the same command again to continue\n",
                 calibration.n_done(), n_samples);
    return kInterruptedExitCode;
  }
  calibration.profile().save(flags.output);
  calibration.remove_state();
  method.set("profile", flags.output);
  std::fprintf(stderr, "%s written in %s; use it with --kv-evict %s\n", flags.output.c_str(),
               duration_text(stopwatch.seconds()).c_str(), method.text().c_str());
  return 0;
}

}  // namespace winnow::cli
