// winnow report: pages, tables and plots from the folders of `winnow eval`.

#include "eval/report/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/text_output.h"
#include "eval/report/results.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportExamples =
    "  winnow report results/longbench\n"
    "  winnow report results/niah results/fidelity --out report\n"
    "  winnow report results/fidelity --against snapkv\n"
    "  winnow report results/f16 results/codes --by bytes\n";

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, "cannot make the folder '" + folder.string() + "': " + error.message());
}

}  // namespace

int report_command(const Arguments& arguments) {
  Arguments rest = arguments;
  const auto first_flag = std::find_if(rest.begin(), rest.end(), [](const auto& a) { return a.starts_with("-"); });
  const std::vector<std::string> folders(rest.begin(), first_flag);
  rest.erase(rest.begin(), first_flag);
  std::string out;
  eval::ReportOptions options;
  CommandLine line("winnow report", "FOLDER... [flags]",
                   "Merges the answers of all shards in the folders of `winnow eval` and writes report.html (one "
                   "self-contained page), report.md, results.csv and each plot as an SVG file.",
                   kReportExamples);
  line.text("--out", "FOLDER", out, "folder for the report (default: `report` in the first FOLDER)");
  line.integer("--answers", options.n_answers, 0,
               "number of samples per task whose answers the page shows (default: 20)");
  line.text("--against", "METHOD", options.against,
            "compare each method with this one, paired by sample, at each budget");
  std::string by = "entries";
  line.text("--by", "UNIT", by,
            "compare methods by the entries that they keep, or by the bytes that these take, whatever their types: "
            "entries, bytes (default: entries)");
  const std::string advice = "name the folders before the flags, e.g. `winnow report results`";
  line.refuse_arguments(advice);
  if (!line.parse(rest)) return 0;
  if (by != "entries" && by != "bytes") throw UsageError("--by takes entries or bytes, not '" + by + "'");
  options.by = by == "bytes" ? eval::KeptUnit::kBytes : eval::KeptUnit::kEntries;
  if (folders.empty()) throw UsageError(advice);

  const std::vector<eval::ReportFile> files = make_report(eval::load_results(folders), options);
  const fs::path folder = out.empty() ? fs::path(folders[0]) / "report" : fs::path(out);
  make_folder(folder / "figures");
  std::string list;
  std::size_t n_figures = 0;
  for (const eval::ReportFile& file : files) {
    const std::string path = (folder / file.path).string();
    OutputFile(path).write(file.content);
    if (file.path.starts_with("figures/")) {
      ++n_figures;
    } else {
      list += path + "\n";
    }
  }
  list += (folder / "figures").string() + " (" + std::to_string(n_figures) + " plots)\n";
  write_output(list);
  return 0;
}

}  // namespace winnow::cli
