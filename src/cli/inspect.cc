// winnow inspect: a page that shows what methods keep of a text.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/analysis_input.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "study/analysis/analysis_text.h"
#include "study/inspect/inspect_page.h"

namespace winnow::cli {
namespace {

constexpr const char* kInspectExamples =
    "  winnow inspect -f book.txt --tokens 2000 -o page.html\n"
    "  winnow inspect -f book.txt -q \"Who is the narrator?\" \\\n"
    "      --methods snapkv,lu-kv-snapkv --budgets 10% -o page.html\n";

}  // namespace

int inspect_command(const Arguments& arguments) {
  AnalysisFlags flags;
  std::string output;
  std::optional<std::string> json;
  CommandLine line("winnow inspect", "-o FILE [flags]",
                   "Writes an HTML page, for any browser, that shows what methods keep of a text: maps of kept "
                   "entries, the text shaded by how many heads still hold each token, budgets by layer and head, and "
                   "the costs. It shows two methods side by side.",
                   kInspectExamples);
  add_analysis_flags(line, flags);
  line.group("Output");
  line.text("-o,--output", "FILE", output, "file to write the page to; - for standard output");
  line.text("--json", "FILE", json, "also write the numbers as JSON, as `winnow analyze --json` does");
  if (!line.parse(arguments)) return 0;
  if (output.empty()) throw UsageError("the page needs a file: name it with -o FILE");
  check_outputs({{"-o", output}, {"--json", json}});

  const OutputFile page_file(output);
  std::optional<OutputFile> json_file;
  if (json) json_file.emplace(*json);
  const std::optional<Analysis> analysis = run_analysis(flags);
  if (!analysis) return kInterruptedExitCode;
  const std::string page = inspect_page(*analysis);
  page_file.write(page);
  if (json_file) json_file->write(analysis_json(*analysis).dump(1) + "\n");
  if (!page_file.is_stdout()) std::fprintf(stderr, "%s: %s\n", output.c_str(), bytes_text(page.size()).c_str());
  return 0;
}

}  // namespace winnow::cli
