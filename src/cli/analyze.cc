// winnow analyze: what methods lose on a text, measured and bounded.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/analysis_input.h"
#include "cli/analysis_tables.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/text_output.h"
#include "study/analysis/analysis.h"
#include "study/analysis/analysis_text.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

struct AnalyzeFlags {
  AnalysisFlags input;
  std::optional<std::string> json, csv;
  bool verbose = false;
};

constexpr const char* kAnalyzeExamples =
    "  winnow analyze -f book.txt --tokens 2000 --methods snapkv,ada-snapkv,lava \\\n"
    "      --budgets 5%,20%\n"
    "  winnow analyze -f book.txt -q \"Who is the narrator?\" --json analysis.json\n"
    "  winnow analyze -f book.txt --methods snapkv,critical-snapkv --csv heads.csv\n";

bool parse_flags(const Arguments& arguments, AnalyzeFlags& flags) {
  CommandLine line("winnow analyze", "[flags]",
                   "Measures what methods lose on a text: the change of each layer's and head's output next to the "
                   "papers' bounds, the entries that later tokens turn out to need, and the next tokens' probabilities "
                   "against the full cache. Tables go to standard output.",
                   kAnalyzeExamples);
  add_analysis_flags(line, flags.input);
  line.group("Output");
  line.text("--json", "FILE", flags.json, "write everything as JSON; - for standard output, instead of the tables");
  line.text("--csv", "FILE", flags.csv, "write a CSV row for each method, budget, layer and query head");
  line.flag("-v,--verbose", flags.verbose, "also print tables by layer");
  return line.parse(arguments);
}

}  // namespace

int analyze_command(const Arguments& arguments) {
  AnalyzeFlags flags;
  if (!parse_flags(arguments, flags)) return 0;
  check_outputs({{"--json", flags.json}, {"--csv", flags.csv}});
  std::optional<OutputFile> json_file, csv_file;
  if (flags.json) json_file.emplace(*flags.json);
  if (flags.csv) csv_file.emplace(*flags.csv);

  const std::optional<Analysis> analysis = run_analysis(flags.input);
  if (!analysis) return kInterruptedExitCode;
  if (json_file) json_file->write(analysis_json(*analysis).dump(1) + "\n");
  if (csv_file) csv_file->write(analysis_csv(*analysis));
  const bool shows_tables = !(json_file && json_file->is_stdout()) && !(csv_file && csv_file->is_stdout());
  if (shows_tables) write_output(analysis_tables(*analysis, flags.verbose));

  const std::vector<std::string> violations = find_violations(*analysis);
  if (violations.empty()) return 0;
  throw Error(ErrorCode::kInternal, std::to_string(violations.size()) +
                                        " losses are above their bounds, which is a bug " +
                                        "in winnow, please report it; the first: " + violations.front());
}

}  // namespace winnow::cli
